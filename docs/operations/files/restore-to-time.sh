#!/bin/bash
# Restore a backup and the binary logs after it, up to a time, into a database that this creates.
#
#   restore-to-time.sh [--replace] BACKUP.sql.gz 'YYYY-MM-DD HH:MM:SS' DATABASE LOGS
#
# BACKUP is a file of back-up.sh. The time is in UTC. DATABASE is gatehouse, or another name for a rehearsal, such as
# gatehouse_rehearsal. It must not exist; with --replace it is dropped first. LOGS is the folder of the binary logs.
# Nothing is dropped or created before the backup and the logs have been read to the end once. Run it on the database
# server, as its administrator; the settings of the client are those of ~/.my.cnf.
set -euo pipefail
refuse() { echo "$* Nothing was changed." >&2; exit 1; }
ask() { mariadb --skip-column-names --batch -e "$1"; }

replace=
[ "${1-}" != --replace ] || { replace=1; shift; }
[ $# = 4 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 64; }
backup=$1 time=$2 database=$3 logs=$4

[[ $time =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}\ [0-9]{2}:[0-9]{2}:[0-9]{2}$ ]] ||
    refuse "$time is not a time like 2026-11-23 14:02:00."
[[ $database =~ ^[A-Za-z0-9_]+$ ]] || refuse "$database is not the name of a database."
now=$(ask 'SELECT UTC_TIMESTAMP()')
[[ ! $time > $now ]] || refuse "$time is in the future: it is $now UTC."
[ -n "$replace" ] || [ -z "$(ask "SELECT 1 FROM information_schema.schemata WHERE schema_name = '$database'")" ] ||
    refuse "The database $database exists. Add --replace to drop it first."

# What back-up.sh wrote before the first table, and the line at the end of a complete backup.
facts=$(zcat "$backup" | LC_ALL=C awk '
    /^CREATE TABLE/ { body = 1 }
    !body && /^-- CHANGE MASTER TO MASTER_LOG_FILE=/ { split($0, part, /\047|MASTER_LOG_POS=|;/); at = part[2] " " part[4] }
    !body && /^-- Gatehouse as of / { since = $5 " " $6 }
    { complete = /^-- Dump completed/ }
    END { print at; print since; print complete }') || refuse "$backup cannot be read to its end."
{ read -r first position; read -r since; read -r complete; } <<<"$facts"
[ -n "$position" ] && [ -n "$since" ] || refuse "$backup names no position and time. Restore a file of back-up.sh."
[ "$complete" = 1 ] || refuse "$backup is incomplete."
# The logs have whole seconds, and the backup has all of its own.
[[ $time > $since ]] || refuse "The backup is of $since UTC. Take an earlier one to restore $time."

mapfile -t files < <(cd "$logs" && find . -maxdepth 1 -name '*.[0-9]*' -printf '%f\n' | LC_ALL=C sort |
    awk -v base="${first%.*}" -v first="$first" -v folder="$logs" '
        /\.[0-9]+$/ && $0 >= first && substr($0, 1, length(base) + 1) == base "." { print folder "/" $0 }')
[ "${files[0]-}" = "$logs/$first" ] || refuse "$logs lacks $first, where the backup ends."
next=$((10#${first##*.}))
for file in "${files[@]}"; do
    [ $((10#${file##*.})) = $next ] || refuse "$logs has $file, but not the one before it."
    next=$((next + 1))
done

# Its --stop-datetime is local time.
read_logs() {
    TZ=UTC mariadb-binlog --disable-log-bin --start-position="$position" --stop-datetime="$time" "$@" "${files[@]}"
}
dropped=$(read_logs | LC_ALL=C awk '
    /^[Dd][Rr][Oo][Pp] / && tolower($0) ~ /^drop +(database|schema) +(if +exists +)?`?gatehouse`?([^a-z0-9_$]|$)/ { n++ }
    END { print n + 0 }') || refuse "The logs cannot be read."
[ "$dropped" = 0 ] ||
    refuse "Between the backup and $time, gatehouse was dropped. Restore a backup that was made after that."

[ -z "$replace" ] || mariadb -e "DROP DATABASE IF EXISTS \`$database\`"
# What is restored is not logged a second time.
mariadb -e "SET sql_log_bin = 0; CREATE DATABASE \`$database\` CHARACTER SET utf8mb4"
zcat "$backup" | mariadb --init-command='SET sql_log_bin = 0' "$database"
# The name after --database is that of the log. The number tells whether anything followed the backup.
read_logs --rewrite-db="gatehouse->$database" --database=gatehouse |
    awk '{ print } /^BINLOG/ { changes++ } END { print changes + 0 " changes after the backup" >"/dev/stderr" }' | mariadb
echo "$database is as it was at $time. Run \"gatehouse maintenance restore\" before a server uses it."
