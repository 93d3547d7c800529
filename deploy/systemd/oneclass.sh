#!/bin/sh
# The command line with the home and the environment of the services: sudo -u oneclass oneclass COMMAND ...
# Root becomes that user, since its files in the home would stop the services.
[ "$(id -u)" != 0 ] || exec runuser -u oneclass -- "$0" "$@"
set -a
. /etc/oneclass/environment
set +a
export HOME=/var/lib/oneclass
cd "$HOME" || exit
umask 0027
exec /opt/oneclass/bin/oneclass "$@"
