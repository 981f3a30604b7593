# Build the programs of tests/journeys/clients and install what runs them. Sourced by script/test at the root of the
# repository, after prepare.sh.

# Print the names of the packages for Apache, Go, Rust, Java and PHP.
missing_client_packages() {
    [ -x /usr/sbin/apache2 ] || printf 'apache2-bin '
    [ -e /usr/lib/apache2/modules/mod_auth_openidc.so ] || printf 'libapache2-mod-auth-openidc '
    command -v go >/dev/null || printf 'golang-go '
    # Debian's newer Rust, which it has for browsers.
    command -v cargo >/dev/null || printf 'cargo-web rustc-web '
    command -v javac >/dev/null || printf 'default-jdk-headless '
    command -v mvn >/dev/null || printf 'maven '
    { command -v php && php -m | grep -qx curl; } >/dev/null || printf 'php-cli php-curl '
}

# Print the path of Go 1.26 or newer. An older one, such as Debian's, downloads it as a module.
find_go() {
    if [ "$(printf 'go1.26\n%s\n' "$(go env GOVERSION)" | sort -V | head -n 1)" = go1.26 ]; then
        command -v go
        return
    fi
    version=v0.0.1-go1.26.8.linux-$(dpkg --print-architecture)
    folder=$GOPATH/pkg/mod/golang.org/toolchain@$version
    if [ ! -x "$folder/bin/go" ]; then
        empty=$(mktemp -d)
        (cd "$empty" && go mod init toolchain && go mod download "golang.org/toolchain@$version") >&2
        rm -rf "$empty"
        # A module has no executable files.
        chmod +x "$folder/bin/"* "$folder/pkg/tool/"*/*
    fi
    printf '%s\n' "$folder/bin/go"
}

# Build the programs into .cache/clients/bin; what is unchanged takes seconds.
prepare_clients() {
    missing=$(missing_client_packages)
    # shellcheck disable=SC2086
    [ -z "$missing" ] || install_packages $missing
    say "Building the clients in Go, Rust and Java (minutes at first)"
    cache=$PWD/.cache/clients
    mkdir -p "$cache/bin"
    export GOPATH="$cache/go" GOFLAGS=-modcacherw GOTOOLCHAIN=local
    GO=$(find_go)
    export GO
    (cd tests/journeys/clients/go_oidc && "$GO" build -o "$cache/bin/go_oidc" .)
    (cd tests/journeys/clients/oauth2_proxy && "$GO" build -o "$cache/bin/oauth2-proxy" github.com/oauth2-proxy/oauth2-proxy/v7)
    cargo build --quiet --locked --manifest-path tests/journeys/clients/rust_openidconnect/Cargo.toml \
        --target-dir "$cache/cargo-target"
    cp "$cache/cargo-target/debug/rust_openidconnect" "$cache/bin/"
    mvn --quiet --batch-mode --file tests/journeys/clients/nimbus package dependency:copy-dependencies \
        -Doutput="$cache/bin/nimbus" -DoutputDirectory="$cache/bin/nimbus"
    mvn --quiet --batch-mode --file tests/journeys/clients/generators dependency:copy-dependencies \
        -DoutputDirectory="$cache/bin" -Dmdep.stripVersion=true -DexcludeTransitive=true
    # What the generated Python package imports besides what the tests have.
    [ -d "$cache/bin/python" ] ||
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$cache/bin/python" \
            python-dateutil==2.9.0.post0
    prepare_node tests/journeys/clients/generators
    mvn --quiet --batch-mode --file tests/journeys/clients/apis/spring dependency:copy-dependencies \
        -DoutputDirectory="$cache/bin/spring"
}
