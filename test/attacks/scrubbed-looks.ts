/** Reads a JSON text on standard input, and runs it as Python. */
export const RUNNER = "import json,sys\nexec(json.load(sys.stdin))";

/**
 * Everything that an item can see of its cell, as JSON, but for what is its own: what the next item sees must be what the
 * first one saw.
 */
export const LOOK = String.raw`
import ctypes, json, os, resource, signal, stat
libc = ctypes.CDLL(None, use_errno=True)
def names(path):
    return sorted(os.fsdecode(name) for name in os.listdir(os.fsencode(path)))
def kind(path):
    s = os.lstat(path)
    return [stat.filemode(s.st_mode), s.st_uid, s.st_gid, s.st_mtime < 1e9, os.listxattr(path, follow_symlinks=False)]
def text(path):
    with open(path) as file: return file.read()
status = dict(line.split(':\t', 1) for line in text('/proc/self/status').splitlines() if ':\t' in line)
own = names('/text')[0]
inherited = [fd for fd in names('/proc/self/fd') if int(fd) > 3 or (int(fd) < 3 and not os.readlink('/proc/self/fd/' + fd).startswith('/.corral/io/'))]
print(json.dumps({
    'processes': [pid for pid in names('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())],
    'files': {path: names(path) for path in ('/tmp', '/dev/shm', '/dev/mqueue', '/attachments', '/.corral/io')},
    'text': [len(names('/text')), names('/text/' + own)],
    'kinds': [kind(path) for path in ('/tmp', '/dev/shm', '/dev/mqueue', '/text', '/text/' + own, '/attachments', '/attachments/in', '/.corral/io', '/.corral/io/in', '/.corral/io/out')],
    'ipc': [len(text('/proc/sysvipc/' + kind).splitlines()) for kind in ('shm', 'msg', 'sem')],
    'sockets': {name: [line.split()[1:] for line in text('/proc/net/' + name).splitlines()[1:] if name != 'netlink' or line.split()[2] != '0'] for name in names('/proc/net') if name in ('unix', 'tcp', 'tcp6', 'udp', 'udp6', 'udplite', 'udplite6', 'raw', 'raw6', 'icmp', 'icmp6', 'packet', 'netlink')},
    'used': text('/proc/net/sockstat').split()[2:10:7],
    'session': [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    'shared': [int(line.split()[1]) <= 1 << 20 for path in ('/sys/fs/cgroup/memory/memory.stat', '/sys/fs/cgroup/memory.stat') if os.path.exists(path) for line in text(path).splitlines() if line.startswith('shmem ')],
    'locks': os.open('/attachments/in', os.O_RDONLY) > 2 and __import__('fcntl').flock(os.open('/attachments/in', os.O_RDONLY), 6),
    'limits': [resource.getrlimit(which) for which in range(16)],
    'nice': [os.getpriority(0, 0), os.sched_getscheduler(0), libc.syscall(252, 1, 0), sorted(os.sched_getaffinity(0))],
    'signals': [status[name] for name in ('SigBlk', 'SigIgn', 'SigPnd')],
    'place': [os.getcwd(), os.umask(0o22), sorted(os.environ), os.environ['HOME'], os.uname().nodename],
    'free': os.statvfs('/tmp').f_bfree == os.statvfs('/tmp').f_blocks,
    'printed': os.fstat(1).st_size,
    'descriptors': inherited,
}))
`;
