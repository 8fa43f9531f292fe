# Make the world of the docs, in new namespaces: world.sh ROOT GRID NAMES PATH... Prints `ready`, and ends with its input.
#
# ROOT: directory for the root of the world's file system
# GRID: directory of certificates, as made by tests/support/world.py
# NAMES: file of the addresses and names of the world's hosts, in the form of /etc/hosts
# PATH...: further files and directories of this machine that are seen in the world, at the same path
set -e
root=$1 grid=$2 names=$3
shift 3

hostname here.example
ip link set lo up
while read -r address _; do
    ip address add "$address/32" dev lo 2> /dev/null || continue  # the address has several names
    ip route replace local "$address" dev lo proto kernel scope host src 192.0.2.7 table local
done < <(grep here.example "$names"; grep -v 127.0.0.1 "$names")

# The programs of this machine, but no file in which it or a user keeps something: pages write to `/data`, `/run1`, ...
mount -t tmpfs -o mode=755 world "$root"
for each in /bin /dev /lib* /opt /sbin /sys /usr; do
    if [ -L "$each" ]; then cp -P "$each" "$root$each"; continue; fi
    mkdir -p "$root$each" && mount --rbind "$each" "$root$each"
done
mkdir -p "$root"/{proc,root,run/sshd,run/secrets,tmp,var/{log/nginx,lib/nginx,tmp},srv/reports}
mount -t proc proc "$root/proc"
chmod 1777 "$root/tmp"
cp -a /etc "$root/etc"
for each in "$@"; do
    if [ -d "$each" ]; then mkdir -p "$root$each"; else mkdir -p "$root${each%/*}" && touch "$root$each"; fi
    mount --rbind "$each" "$root$each"
done

cd "$root/etc"
cp "$names" hosts
chmod 644 passwd group
echo 'hosts: files' > nsswitch.conf
rm -rf grid-security nginx/sites-enabled/* coget ssh/sshd_config.d
mkdir -p grid-security coget prometheus tmpfiles.d ssl/private ssl/certs
cp -r "$grid/certificates" grid-security/
cp "$grid/robot-proxy.pem" coget/
cp "$grid/host.pem" ssl/broker.example.pem
cp "$grid/host.key" ssl/private/broker.example.key
cat "$grid/authority.pem" >> ssl/certs/ca-certificates.crt
cp "$grid"/nginx/* nginx/conf.d/
sed -i 's/^user .*/user root;/' nginx/nginx.conf
ssh-keygen -q -t ed25519 -N '' -f ssh/ssh_host_ed25519_key <<< y > /dev/null
printf 'HostKey /etc/ssh/ssh_host_ed25519_key\nPermitRootLogin yes\nAuthorizedKeysFile /etc/ssh/authorized_keys\n' > ssh/sshd_config

enter() { chroot "$root" env -C / "$@"; }
export X509_CERT_DIR=/etc/grid-security/certificates X509_USER_CERT=$grid/host.pem X509_USER_KEY=$grid/host.key
export GRIDMAP=$grid/grid-mapfile RES_OPTIONS='timeout:1 attempts:5'
serve="globus-gridftp-server -c /dev/null -allow-root -home-dir /"
enter $serve -p 21 -aa -anonymous-user root -anonymous-group root > "$root/var/log/ftp" 2>&1 < /dev/null &
enter $serve -p 2811 > "$root/var/log/gsiftp" 2>&1 < /dev/null &
enter nginx >&2 < /dev/null
enter /usr/sbin/sshd >&2 < /dev/null

# Shells enter the root of this process, so it says `ready` only when it has that root.
exec chroot "$root" sh -c 'echo ready; exec cat > /dev/null'
