/** Where the conversations of one project are kept. */
export interface Transcripts {
  /** Begins the transcript of a run. */
  open(run: string): Promise<TranscriptSink>;
}

export interface TranscriptSink extends AsyncDisposable {
  /** One line, with its end. What cannot be written is told to a person, and the run goes on. */
  write(line: string): Promise<void>;
}

/** For what only looks, and for whoever wants none. */
export const noTranscripts: Transcripts = {
  open: async () => ({ write: async () => {}, [Symbol.asyncDispose]: async () => {} }),
};
