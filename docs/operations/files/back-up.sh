#!/bin/bash
# Back up the database gatehouse with its position in the binary logs, for restore-to-time.sh.
#
#   back-up.sh FOLDER
#
# It writes FOLDER/gatehouse-TIME.sql.gz and prints this name. The file gets the name only when it is complete, so a
# backup that fails replaces nothing. Run it on the database server, as its administrator; the settings of the client
# are those of ~/.my.cnf.
set -euo pipefail
folder=${1:?Usage: back-up.sh FOLDER}
umask 077
file=$folder/gatehouse-$(date -u +%Y-%m-%dT%H-%M-%SZ).sql.gz
[ ! -e "$file" ] || { echo "$file exists." >&2; exit 1; }
trap 'rm -f "$file.part"' EXIT

# --master-data=2 writes at the beginning where the backup ends in the binary logs. The line after it says when that
# was, by the clock of the database server, which is also that of the logs.
mariadb-dump --single-transaction --master-data=2 --no-tablespaces --skip-add-locks gatehouse | {
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
        "-- CHANGE MASTER TO "*)
            at=$(mariadb --skip-column-names --batch -e 'SELECT UTC_TIMESTAMP()' </dev/null)
            echo "-- Gatehouse as of $at UTC"
            break
            ;;
        esac
    done
    cat
} | gzip >"$file.part"
sync "$file.part"
mv "$file.part" "$file"
echo "$file"
