#!/bin/sh
# second-engine.sh ROOT DATA CHECKOUT PACKED: makes the tree ROOT the root directory of this mount namespace, and keeps the namespace. Called
# in mount and network namespaces of its own. ROOT itself is read-only; what a host writes is below DATA. Prints `ready`.
set -eu
root=$1 data=$2
ip link set lo up
mount --bind "$root" "$root"
mount --bind "$3" "$root/corral"
mount --bind "$4" "$root/packed"
if [ -d "$data/policies" ]; then
  for package in corral packed/node_modules/corral; do mount --bind "$data/policies" "$root/$package/policies"; done
fi
for place in tmp var/tmp root home etc/docker var/lib/docker var/lib/corral-up; do
  mkdir -p "$data/$place" "$root/$place"
  mount --bind "$data/$place" "$root/$place"
done
chmod 1777 "$data/tmp" "$data/var/tmp"
mount --bind /proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cd "$root"
pivot_root . old
umount -l /old
mount -o remount,bind,ro /
echo ready
exec sleep infinity
