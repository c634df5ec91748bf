# Attacks from within a cell, for `corral verify`. Perl is in Debian's base, and can call the kernel by number.
# Prints a line for each: THREAT, what was tried, `held` or `through`, what it saw; with tabs between.
# Arguments: which attacks, then NAME=VALUE.
use strict;
use warnings;
no warnings qw(exec uninitialized);
use Fcntl;
use Socket;
use POSIX ();
use Errno qw(EPERM EACCES ENOSYS);

$| = 1;
$SIG{PIPE} = 'IGNORE';
my ($mode, @given) = @ARGV;
my %given = map { split /=/, $_, 2 } @given;
my $out = $given{out} // '/tmp';
my %allows = map { $_ => 1 } split /,/, ($given{allows} // '');
# A kernel that is not the host's has files and devices of its own, and shows other things of itself.
my $has_own_kernel = defined $given{kernel} && text_of('/proc/version') ne "$given{kernel}\n";
# Folders of this machine that are the image.
my @programs = split /,/, ($given{programs} // '');
my $is_arm = (POSIX::uname())[4] eq 'aarch64';

# Its prototype takes a list, or a match, for whether there was one.
sub told($$$;$) {
  my ($threat, $what, $is_through, $saw) = @_;
  $saw = substr($saw // 'it was possible', 0, 200) =~ s/[\t\n]/ /gr;
  print join("\t", $threat, $what, $is_through ? ('through', $saw) : ('held', '')), "\n";
}

sub text_of {
  my ($path) = @_;
  open(my $file, '<', $path) or return undef;
  local $/;
  return <$file> // '';
}

my @mounts = split /\n/, text_of('/proc/self/mountinfo');

# Mounts have to be named where a search stays on one file system.
my @searched = grep { m{^[\w/.-]+$} && !m{^/($|(proc|sys|dev)(/|$))} } map { (split / /)[4] } @mounts;

# A search that its time was not enough for has not held.
sub search {
  my ($threat, $what, $tests, $expected) = @_;
  my $seconds = $given{seconds} // 10;
  my @found = grep { !/$expected/ } split /\n/, `timeout $seconds find / @searched -xdev $tests 2>/dev/null`;
  if (@found || $? >> 8 != 124) { return told($threat, $what, @found > 0, "found $found[0]") }
  print join("\t", $threat, $what, 'untried', "the search did not end within $seconds seconds"), "\n";
}

sub opens {
  my ($path, $how) = @_;
  return sysopen(my $file, $path, $how | O_NONBLOCK);
}

sub has_content {
  my ($path) = @_;
  if (opendir(my $dir, $path)) { return grep { !/^\./ } readdir $dir }
  sysopen(my $file, $path, O_RDONLY | O_NONBLOCK) or return 0;
  return (sysread($file, my $byte, 1) // 0) > 0;
}

# What a server at this address says within three seconds, to a request if there is one; undef without a connection.
sub answer_of {
  my ($family, $address, $request) = @_;
  my $socket;
  my $answer;
  local $SIG{ALRM} = sub { die };
  eval {
    alarm 3;
    if (socket($socket, $family, SOCK_STREAM, 0) && connect($socket, $address)) {
      $answer = '';
      syswrite($socket, $request) if defined $request;
      while (defined $request && sysread($socket, my $part, 4096)) { $answer .= $part }
    }
  };
  alarm 0;
  return $answer;
}

# A file beside what the worker was given, by every way that could lead to it.
sub not_granted {
  my ($path, $name, $text) = @given{'canary', 'name', 'text'};
  for ($path, "/proc/1/root$path", "/proc/self/root$path", "/docs/../$name", '/docs/link', "/docs/../../..$path") {
    told('read', "open $_", index(text_of($_) // '', $text) >= 0, 'it was read');
  }
  search('read', 'find it in the whole file system', "-name '$name'", qr{^/docs/link$});
  my $usual = qr{^/($|(proc|sys|dev|tmp|docs|inside|\.corral|attachments)(/|$)|etc/\w+(\.conf)?$|usr/sbin/docker-init$)};
  # A cell of bubblewrap has its settings in memory.
  my @places = grep { my $place = $_; !/$usual/ && $_ ne $ENV{HOME} && !grep { index("$place/", "$_/") == 0 } @programs }
    map { (split / /)[4] } grep { !m{ /etc ro,[^ ]*noexec.* - tmpfs } } @mounts;
  told('read', 'see a folder that was not granted', @places > 0, "sees $places[0]");
  my $environments = join ' ', map { text_of($_) // '' } glob('/proc/[0-9]*/environ');
  told('read', 'read the environments of all processes', index($environments, $text) >= 0, 'saw that of Corral');
  search('engine', 'find a socket of another program', '-type s', qr{^/(\.corral|docs|inside)/});
  for (map { ("/var$_", $_) } qw(/run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock)) {
    told('engine', "connect to $_", defined answer_of(AF_UNIX, pack_sockaddr_un($_)), 'is connected');
  }
}

sub read_only {
  my @attempts = (
    ['write a new file', sub { opens('/docs/new', O_WRONLY | O_CREAT) }],
    ['append to a file', sub { opens('/docs/a.txt', O_WRONLY | O_APPEND) }],
    ['remove a file', sub { unlink '/docs/a.txt' }],
    ['rename a file', sub { rename '/docs/a.txt', '/docs/b.txt' }],
    ['change a mode', sub { chmod 0777, '/docs/a.txt' }],
    ['set a time', sub { utime 0, 0, '/docs/a.txt' }],
    ['make a directory', sub { mkdir '/docs/d' }],
    ['make a link', sub { symlink '/', '/docs/l' }],
    ['make a second name of a file', sub { link('/docs/a.txt', '/tmp/a') || link('/docs/a.txt', "$out/a") }],
    ['open it again by its descriptor', sub {
      open(my $file, '<', '/docs/a.txt') or return 0;
      return opens('/proc/self/fd/' . fileno($file), O_WRONLY);
    }],
  );
  for (@attempts) {
    my ($what, $act) = @$_;
    told('write', "$what in a folder given read-only", $act->());
  }
  my ($docs) = grep { (split / /)[4] eq '/docs' } @mounts;
  told('write', 'have a folder given read-only mounted otherwise', (split / /, $docs)[5] !~ /^ro/, 'it is mounted so');
  my ($root) = grep { (split / /)[4] eq '/' } @mounts;
  told('write', 'have a root file system that can be written', (split / /, $root)[5] =~ /^rw/, 'it is mounted so');
  for my $place (@programs) {
    my ($mount) = grep { (split / /)[4] eq $place } @mounts;
    told('write', "have $place mounted otherwise", (split / /, $mount)[5] !~ /^ro/, 'it is mounted so') if $mount;
  }
  for (grep { -d } qw(/ /etc /usr/bin /usr/lib /root /var/lib /opt /.corral)) {
    my $is_made = opens("$_/verify-new", O_WRONLY | O_CREAT);
    unlink "$_/verify-new" if $is_made;
    told('write', "make a file in $_", $is_made);
  }
  told('write', "open $_ for writing", opens($_, O_WRONLY)) for grep { -e } qw(/etc/passwd /bin/sh /etc/ld.so.cache);
}

sub kernel_files {
  my @settings = map { "/proc/sys/$_" } qw(kernel/core_pattern kernel/hostname kernel/modprobe vm/overcommit_memory);
  for (grep { -e } @settings, qw(/proc/sysrq-trigger /sys/kernel/uevent_helper /sys/fs/cgroup/release_agent)) {
    told('kernel-files', "open $_ for writing", opens($_, O_WRONLY));
  }
  told('kernel-files', 'have /proc/sys writable', !$has_own_kernel && !grep({ (split / /)[4] eq '/proc/sys' } @mounts), 'it is mounted so');
  my @secret = qw(/proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /sys/firmware/dmi /sys/kernel/debug);
  told('kernel-files', "read $_", has_content($_), 'it has content') for grep { -e } @secret, qw(/dev/mem /dev/kmsg);
}

sub privileges {
  my %status = map { /^(\w+):\s*(.*)/ ? ($1 => $2) : () } split /\n/, text_of('/proc/self/status') // '';
  for (qw(CapEff CapPrm CapBnd CapInh CapAmb)) {
    last if $allows{capabilities};
    told('privileges', "have capabilities ($_)", $status{$_} =~ /[1-9a-f]/, "0x$status{$_}");
  }
  my $no_new = syscall($is_arm ? 167 : 157, 39, 0, 0, 0, 0);
  told('privileges', 'gain rights by a setuid program', $no_new != 1, 'no_new_privs is not set')
    if !$allows{new_privileges};
  told('privileges', 'be user 0', $< == 0, 'is user 0') if !$allows{root_user};
  my @groups = grep { $_ != 0 && $_ != $( + 0 } split ' ', $status{Groups};
  # Those of an ordinary user stay in a user namespace of his own.
  my $stay = (text_of('/proc/self/setgroups') // '') =~ /deny/;
  if (@groups && $stay) {
    print join("\t", 'privileges', 'belong to further groups', 'untried',
      'the groups of your user stay, as no ordinary user can give them up; without them (`setpriv --clear-groups`) this holds'), "\n";
  } else {
    told('privileges', 'belong to further groups', @groups > 0, "groups @groups");
  }
  told('kernel', 'call it without a filter', $status{Seccomp} != 2, 'there is no seccomp filter') if !$allows{no_filter};
}

# The kernel refuses these by the filter, or for want of rights. Any other answer says that it began to do them.
sub kernel_calls {
  my @calls = (
    ['make a user namespace', 272, 97, 0x10000000], ['make a mount namespace', 272, 97, 0x20000],
    ['make a network namespace', 272, 97, 0x40000000], ['enter a namespace', 308, 268, -1, 0],
    ['mount', 165, 40, 0, 0, 0, 0, 0], ['unmount', 166, 39, 0, 0], ['change the root', 155, 41, 0, 0],
    ['chroot', 161, 51, 0], ['open a file system', 430, 430, 0, 0], ['open a tree of mounts', 428, 428, -1, 0, 0],
    ['move a mount', 429, 429, -1, 0, -1, 0, 0], ['load a program into it (bpf)', 321, 280, 0, 0, 0],
    ['watch the processor (perf)', 298, 241, 0, 0, -1, -1, 0], ['add a key', 248, 217, 0, 0, 0, 0, -4],
    ['ask the key ring', 250, 219, 0, -4, 0], ['handle faults of memory', 323, 282, 1],
    ['queue requests (io_uring)', 425, 425, 0, 0], ['open a file by its handle', 304, 265, -1, 0, 0],
    ['load a module', 175, 105, 0, 0, 0], ['load a module from a file', 313, 273, -1, 0, 0],
    ['load another kernel', 246, 104, 0, 0, 0, 0], ['reboot', 169, 142, 0, 0, 0, 0], ['set the clock', 227, 112, 0, 0],
    ['set the host name', 170, 161, 0, 0], ['swap', 167, 224, 0, 0], ['set quotas', 179, 60, 0, 0, 0, 0],
    ['account for processes', 163, 89, 0], ['trace a process', 101, 117, 0, 0, 0, 0],
    ['read the memory of process 1', 310, 270, 1, 0, 0, 0, 0, 0],
  );
  return if $allows{seccomp};
  for (@calls) {
    my ($what, $number, $on_arm, @args) = @$_;
    my $pid = fork() // next;
    if ($pid == 0) { POSIX::_exit(syscall($is_arm ? $on_arm : $number, @args) >= 0 ? 255 : $! + 0) }
    waitpid $pid, 0;
    my $code = $? >> 8;
    my $is_held = $? & 127 || $code == EPERM || $code == EACCES || $code == ENOSYS;
    told('kernel', $what, !$is_held, $code == 255 ? 'it was possible' : "it answered error $code, not that it may not");
  }
  my @families = (
    ['virtual machines', 40, 1, 0], ['cryptography', 38, 5, 0], ['packets', 17, 3, 0], ['raw packets', 2, 3, 1],
    ['XDP', 44, 3, 0], ['bluetooth', 31, 3, 1], ['SCTP', 2, 5, 132], ['DCCP', 2, 6, 33], ['MPTCP', 2, 1, 262],
  );
  for (@families) {
    my ($what, @kind) = @$_;
    told('kernel', "make a socket for $what", socket(my $socket, $kind[0], $kind[1], $kind[2]));
  }
}

sub devices {
  my @usual = qw(console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero);
  my %usual = map { $_ => 1 } @usual, $has_own_kernel ? qw(fuse net) : ();
  opendir(my $dir, '/dev') or return;
  my @more = grep { !/^\.\.?$/ && !$usual{$_} } readdir $dir;
  told('devices', 'see one of the host in /dev', @more > 0, "sees $more[0] and " . $#more . ' more');
  for (['a disk', 0060666, 8 << 8], ['the memory', 0020666, 1 << 8 | 1]) {
    my ($what, $kind, $number) = @$_;
    my @made = grep { syscall($is_arm ? 33 : 259, -100, $_, $kind, $number) == 0 } map { "$_" } '/tmp/node', "$out/node";
    unlink @made;
    told('devices', "make a node for $what", @made > 0);
  }
}

sub namespaces {
  for (qw(mnt pid net ipc uts)) {
    my $own = readlink("/proc/self/ns/$_") // '';
    told('namespaces', "share that of the host ($_)", $own eq ($given{"ns_$_"} // ''), "is in $own, as the host");
  }
  my $processes = () = glob('/proc/[0-9]*');
  told('namespaces', 'see processes of the host', $processes > 12, "sees $processes");
  my @kernel = map { (split / /)[4] } grep { / rw[, ].* - (proc|sysfs|cgroup2?) / } @mounts;
  my @writable = grep { $_ ne '/proc' } @kernel;
  told('namespaces', 'have the kernel\'s files writable', @writable > 0, "has $writable[0]");
}

sub network {
  my @devices = grep { $_ ne 'lo' } map { /^\s*([^:\s]+):/ ? $1 : () } split /\n/, text_of('/proc/net/dev') // '';
  told('network', 'have a device beside loopback', @devices > 0, "has @devices");
  my @routes = split /\n/, text_of('/proc/net/route') // '';
  told('network', 'have a route', @routes > 1, "has $#routes");
  for (split /,/, $given{hosts} // '') {
    my $place = pack_sockaddr_in($given{port}, inet_aton($_));
    told('network', "connect to the host at $_", defined answer_of(AF_INET, $place), 'is connected');
    next if /^127\./;
    my $socket;
    my $is_sent = socket($socket, AF_INET, SOCK_DGRAM, 0) && send($socket, 'corral', 0, $place);
    told('network', "send a datagram to the host at $_", $is_sent, 'it was sent');
  }
  my $place = pack('Sa*', AF_UNIX, "\0" . ($given{abstract} // 'none'));
  told('network', 'connect to a nameless socket of the host', defined answer_of(AF_UNIX, $place), 'is connected');
}

sub execution {
  return if $allows{tmp_exec};
  my $program = text_of('/bin/true') // return;
  for my $dir (grep { -d && -w } '/tmp', $ENV{HOME} // '/tmp', '/dev/shm') {
    my $path = "$dir/verify-program";
    open(my $file, '>', $path) or next;
    print $file $program;
    close $file;
    chmod 0755, $path;
    my $status = system { $path } $path;
    told('execution', "execute what it wrote in $dir", $status == 0, 'it ran');
    unlink $path;
  }
  my $name = 'corral';
  my $fd = syscall($is_arm ? 279 : 319, $name, 0);
  my $is_run = 0;
  if ($fd >= 0) {
    open(my $file, '>&=', $fd);
    syswrite($file, $program);
    my $pid = fork() // return;
    if ($pid == 0) { exec { "/proc/self/fd/$fd" } 'true' or POSIX::_exit(126) }
    waitpid $pid, 0;
    $is_run = $? == 0;
  }
  told('execution', 'execute a file in memory', $is_run, 'it ran');
}

# Those below end by a limit, or say how far they came.
sub memory {
  print "begun\n";
  my @kept = map { 'x' x 2**20 } 1 .. $given{mib};
  told('memory', "use $given{mib} MiB, four times its limit", 1, 'it had all of it');
}

sub processes {
  my @pids;
  print "begun\n";
  while (@pids < $given{count}) {
    my $pid = fork() // last;
    if ($pid == 0) { sleep 60; POSIX::_exit(0) }
    push @pids, $pid;
  }
  kill 9, @pids;
  my $count = @pids;
  told('processes', "start $given{count}, more than its limit", $count == $given{count}, "$count were started");
}

sub disk {
  for (1 .. $given{mib}) {
    open(my $file, '>', "$out/$_") or last;
    print $file 'x' x 2**20 or last;
    close $file or last;
  }
  sleep 5;
}

sub output { print 'x' x 2**20 for 1 .. $given{mib} }

# Hides from the end of its time in a session of its own, and goes on.
sub endless {
  $SIG{TERM} = 'IGNORE';
  $0 = $given{mark};
  if (!fork()) {
    POSIX::setsid();
    exit if fork();
    print "hidden\n";
    sleep 60;
    exit;
  }
  sleep 60;
}

sub staged {
  open(my $file, '>', "$out/a.txt") or die "cannot write: $!";
  print $file 'changed';
  unlink "$out/b.txt";
  symlink '/etc/shadow', "$out/link";
  mkdir "$out/.git";
  if (open(my $config, '>', "$out/.git/config")) { print $config "[core]\nfsmonitor = id\n" }
}

# One item leaves what it can, another looks for it.
sub leave {
  for (grep { defined && -d } '/tmp', $ENV{HOME}, '/dev/shm', '/var/tmp', '/run') { open(my $file, '>', "$_/left-behind") }
  exit if fork();
  POSIX::setsid();
  open($_, '+<', '/dev/null') for *STDIN, *STDOUT, *STDERR;
  $0 = 'left-behind';
  sleep 300;
}

sub find_left {
  my $home = $ENV{HOME} // '/';
  my @files = split /\n/, `find / /tmp /dev/shm "$home" -xdev -name left-behind 2>/dev/null`;
  told('next-item', 'see a file of the item before', @files > 0, "found $files[0]");
  my @running = grep { text_of($_) =~ /left-behind/ } glob('/proc/[0-9]*/comm');
  told('next-item', 'see a process of the item before', @running > 0, 'it still runs');
}

# By the proxy of the allow list, which names HOST:PORT or HOST:PORT:allowed.
sub connections {
  my ($host, $port) = ($ENV{https_proxy} // $ENV{HTTPS_PROXY} // '') =~ m{//(?:[^@]*@)?([\d.]+):(\d+)} or die 'no proxy';
  my $proxy = pack_sockaddr_in($port, inet_aton($host));
  for (split /,/, $given{to}) {
    my ($place, $is_allowed) = /^(.+?:\d+)(:allowed)?$/;
    my $answer = answer_of(AF_INET, $proxy, "CONNECT $place HTTP/1.1\r\nHost: $place\r\n\r\n") // '';
    if ($is_allowed) { told('allow-list', "be kept from $place, which is allowed", $answer !~ /corral here/, "it was not reached: $answer") }
    else { told('allow-list', "connect to $place, which is not allowed", $answer =~ /corral here/, 'it was answered') }
  }
}

# The first item leaves something, and the second looks for it.
sub item { (do { local $/; <STDIN> } // '') =~ /leave/ ? leave() : find_left() }

my %attacks = (
  inside => sub {
    $_->() for \&not_granted, \&read_only, \&kernel_files, \&privileges, \&kernel_calls;
    $_->() for \&devices, \&namespaces, \&network, \&execution;
  },
  memory => \&memory, processes => \&processes, disk => \&disk, output => \&output, endless => \&endless,
  staged => \&staged, item => \&item, connections => \&connections,
);
($attacks{$mode} // die "no attack $mode")->();
print "end\n";
