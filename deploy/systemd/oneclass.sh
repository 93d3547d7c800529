#!/bin/sh
# The command line with the home and the environment of the services: sudo -u oneclass oneclass COMMAND ...
set -a
. /etc/oneclass/environment
set +a
export HOME=/var/lib/oneclass
cd "$HOME" || exit
umask 0027
exec /opt/oneclass/bin/oneclass "$@"
