#!/bin/sh
# Restore a backup and the binary logs after it, up to a time, into a database that this creates.
#
#   restore-to-time.sh BACKUP.sql.gz 'YYYY-MM-DD HH:MM:SS' DATABASE LOGS
#
# The time is in UTC. DATABASE is gatehouse, or another name for a rehearsal, such as gatehouse_rehearsal: then nothing
# else is changed. It must not exist yet. LOGS is the folder of the binary logs. Run it on the database server, as its
# administrator; the settings of the client are those of ~/.my.cnf.
set -eu
backup=$1 time=$2 database=$3 logs=$4

# Where the backup ends in the binary logs, which mariadb-dump --master-data=2 wrote at its beginning.
position=$(zcat "$backup" | sed -n \
    "s/^-- CHANGE MASTER TO MASTER_LOG_FILE='\([^']*\)', MASTER_LOG_POS=\([0-9]*\);.*/\1 \2/p;/^CREATE TABLE/q")
[ -n "$position" ] || { echo "$backup names no position. Make it with --master-data=2." >&2; exit 1; }
first=${position% *}
files=$(cd "$logs" && ls | sed -n 's/^\(.*\.[0-9][0-9]*\)$/\1/p' | sort |
    awk -v first="$first" -v folder="$logs" '$0 >= first { print folder "/" $0 }')
case $files in
*/"$first"*) ;;
*) echo "$logs lacks $first, where the backup ends." >&2; exit 1 ;;
esac

# What is restored is not logged a second time. The time of mariadb-binlog is local.
mariadb -e "SET sql_log_bin = 0; CREATE DATABASE \`$database\` CHARACTER SET utf8mb4"
zcat "$backup" | mariadb --init-command='SET sql_log_bin = 0' "$database"
# The name after --database is that of the log. The number tells whether anything followed the backup.
# shellcheck disable=SC2086
TZ=UTC mariadb-binlog --disable-log-bin --start-position="${position#* }" --stop-datetime="$time" \
    --rewrite-db="gatehouse->$database" --database=gatehouse $files |
    awk '{ print } /^BINLOG/ { changes++ } END { print changes + 0 " changes after the backup" >"/dev/stderr" }' | mariadb
echo "$database is as it was at $time. Run \"gatehouse maintenance restore\" before a server uses it."
