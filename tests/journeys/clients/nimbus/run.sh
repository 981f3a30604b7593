# Java has its own format for the certificate authorities to trust.
keytool -importcert -noprompt -alias tests -file "$SSL_CERT_FILE" -keystore trust.p12 -storepass changeit 2>/dev/null
exec java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit \
    -cp "$PROGRAMS/nimbus/*" Quickstart
