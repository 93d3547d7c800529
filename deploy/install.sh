#!/bin/sh
# Install or upgrade Oneclass as services of systemd: the user `oneclass`, the program in /opt/oneclass, the command
# `oneclass` for it, and the units. Needs root, systemd, Python 3.11 or newer with venv, and this checkout.
set -eu
cd "$(dirname "$0")/.."
systemd-sysusers "$PWD"/deploy/systemd/oneclass.sysusers
install -d -o oneclass -g oneclass -m 0750 /var/lib/oneclass
install -d -m 0755 /etc/oneclass
[ -e /etc/oneclass/environment ] || install -o root -g oneclass -m 0640 deploy/systemd/environment /etc/oneclass/environment
python3 -m venv /opt/oneclass
/opt/oneclass/bin/python -m pip install -q -c constraints.txt '.[dask,serve,sql]'
install -m 0755 deploy/systemd/oneclass.sh /usr/local/bin/oneclass
cp -R deploy/systemd/*.service deploy/systemd/*.timer deploy/systemd/*.service.d /etc/systemd/system/
systemctl daemon-reload
echo "Installed. Next: sudo -u oneclass oneclass inspect --source LOG --write NAME"
