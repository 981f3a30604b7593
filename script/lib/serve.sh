# serve FOLDER [ARGUMENT...]: run the server of the application in the folder. Sourced by script/server and
# script/gatehouse.
serve() {
    folder=$1
    shift
    # Variables of the C library. Blocks of a megabyte and more, such as the 19 MiB of a password hash, are returned to
    # the system when they are freed. Threads share one arena: they wait for each other in Python anyway, and eight
    # arenas held 8 MB of a worker under load.
    export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-1048576}" MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-1}"
    exec "$folder/.venv/bin/python" "$folder/script/lib/serve.py" "$@"
}
