/**
 * The gate's report of a sound cell of the plan in `verify.test.ts`, as a cgroup v1 host gives it (its own control
 * groups and unrelated lines left out).
 */
export const SOUND_REPORT = `==> /proc/self/mountinfo <==
168 112 0:65 / / ro,relatime master:5 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
169 168 0:68 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
170 168 0:69 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
171 170 0:70 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666
172 168 0:71 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
173 172 0:72 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
177 173 0:32 /docker/98 /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,memory
184 170 0:73 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k
185 168 254:0 /usr/bin/tini-static /sbin/docker-init ro,relatime - ext4 /dev/vda rw,discard
186 168 254:0 /srv/the\\040data /the\\040data ro,nosuid,nodev,relatime - ext4 /dev/vda rw,discard
187 168 254:0 /srv/out /out rw,relatime - ext4 /dev/vda rw,discard
188 168 0:74 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=65536k
189 168 254:0 /state/gate/busybox /.corral/busybox ro,relatime - ext4 /dev/vda rw,discard
190 168 254:0 /state/s /.corral/socket ro,relatime - ext4 /dev/vda rw,discard
191 168 254:0 /var/lib/docker/containers/98/resolv.conf /etc/resolv.conf ro,relatime - ext4 /dev/vda rw,discard
194 168 0:75 / /home/worker rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=65536k,mode=700,uid=65532,gid=65532
113 169 0:68 /bus /proc/bus ro,nosuid,nodev,noexec,relatime - proc proc rw
118 169 0:69 /null /proc/keys rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755

==> /proc/self/status <==
Name:	busybox
Uid:	65532	65532	65532	65532
Gid:	65532	65532	65532	65532
Groups:	65532 
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2

==> /proc/self/limits <==
Limit                     Soft Limit           Hard Limit           Units     
Max file size             1048576              1048576              bytes     
Max open files            1024                 1024                 files     
Max nice priority         0                    0                    

==> /proc/net/dev <==
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
 tunl0:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0

==> /proc/meminfo <==
MemTotal:       24681234 kB
SwapTotal:       2097148 kB
== cgroup
memory/memory.limit_in_bytes 536870912
memory/memory.memsw.limit_in_bytes 536870912
pids/pids.max 512
cpu/cpu.cfs_quota_us 400000
cpu/cpu.cfs_period_us 100000
== namespaces
4026532200 /proc/self/ns/pid
4026532201 /proc/self/ns/ipc
4026532202 /proc/self/ns/uts
== identities
8:101 /the data
8:100 /out
8:10 /.corral/busybox
8:11 /.corral/socket
== directory
entered
== command
/usr/bin/do
== end
`;

/** The control groups of a cgroup v2 host, in place of the above. */
export const CGROUP_V2 = `memory.max 536870912
memory.swap.max 0
pids.max 512
cpu.max 400000 100000`;
