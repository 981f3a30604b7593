import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jwt.JWT;
import com.nimbusds.oauth2.sdk.AuthorizationCode;
import com.nimbusds.oauth2.sdk.AuthorizationCodeGrant;
import com.nimbusds.oauth2.sdk.AuthorizationGrant;
import com.nimbusds.oauth2.sdk.RefreshTokenGrant;
import com.nimbusds.oauth2.sdk.ResponseType;
import com.nimbusds.oauth2.sdk.Scope;
import com.nimbusds.oauth2.sdk.TokenRequest;
import com.nimbusds.oauth2.sdk.TokenResponse;
import com.nimbusds.oauth2.sdk.auth.ClientAuthentication;
import com.nimbusds.oauth2.sdk.auth.ClientSecretBasic;
import com.nimbusds.oauth2.sdk.auth.Secret;
import com.nimbusds.oauth2.sdk.id.ClientID;
import com.nimbusds.oauth2.sdk.id.Issuer;
import com.nimbusds.oauth2.sdk.id.State;
import com.nimbusds.openid.connect.sdk.AuthenticationRequest;
import com.nimbusds.openid.connect.sdk.AuthenticationResponse;
import com.nimbusds.openid.connect.sdk.AuthenticationResponseParser;
import com.nimbusds.openid.connect.sdk.LogoutRequest;
import com.nimbusds.openid.connect.sdk.Nonce;
import com.nimbusds.openid.connect.sdk.OIDCTokenResponseParser;
import com.nimbusds.openid.connect.sdk.UserInfoRequest;
import com.nimbusds.openid.connect.sdk.UserInfoResponse;
import com.nimbusds.openid.connect.sdk.op.OIDCProviderMetadata;
import com.nimbusds.openid.connect.sdk.token.OIDCTokens;
import com.nimbusds.openid.connect.sdk.validators.IDTokenValidator;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;

/** Nimbus OAuth 2.0 SDK: https://connect2id.com/products/nimbus-oauth-openid-connect-sdk/examples/openid-connect. */
public class Quickstart {

    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final URI HERE = URI.create("http://localhost:" + PORT);
    static final URI CALLBACK = HERE.resolve("/callback");
    static final ClientID CLIENT_ID = new ClientID(System.getenv("CLIENT_ID"));
    static final ClientAuthentication CLIENT_AUTH =
        new ClientSecretBasic(CLIENT_ID, new Secret(System.getenv("CLIENT_SECRET")));

    static OIDCProviderMetadata metadata;
    // This application has one user.
    static State state;
    static Nonce nonce;
    static OIDCTokens tokens;
    static JWT idToken;

    static URI login() {
        state = new State();
        nonce = new Nonce();
        return new AuthenticationRequest.Builder(
            new ResponseType("code"), new Scope("openid", "profile", "email", "offline_access"), CLIENT_ID, CALLBACK)
            .endpointURI(metadata.getAuthorizationEndpointURI())
            .state(state)
            .nonce(nonce)
            .build()
            .toURI();
    }

    static URI callback(URI address) throws Exception {
        AuthenticationResponse response = AuthenticationResponseParser.parse(address);
        if (!response.getState().equals(state)) throw new IllegalStateException("Unexpected authentication response");
        if (!response.indicatesSuccess()) {
            throw new IllegalStateException(response.toErrorResponse().getErrorObject().toString());
        }
        AuthorizationCode code = response.toSuccessResponse().getAuthorizationCode();
        tokens = request(new AuthorizationCodeGrant(code, CALLBACK));
        idToken = tokens.getIDToken();
        new IDTokenValidator(metadata.getIssuer(), CLIENT_ID, JWSAlgorithm.RS256, metadata.getJWKSetURI().toURL())
            .validate(idToken, nonce);
        return HERE.resolve("/profile");
    }

    static OIDCTokens request(AuthorizationGrant grant) throws Exception {
        TokenRequest request = new TokenRequest(metadata.getTokenEndpointURI(), CLIENT_AUTH, grant, null);
        TokenResponse response = OIDCTokenResponseParser.parse(request.toHTTPRequest().send());
        if (!response.indicatesSuccess()) {
            throw new IllegalStateException(response.toErrorResponse().getErrorObject().toString());
        }
        return (OIDCTokens) response.toSuccessResponse().getTokens();
    }

    static String profile() throws Exception {
        UserInfoResponse response = UserInfoResponse.parse(
            new UserInfoRequest(metadata.getUserInfoEndpointURI(), tokens.getBearerAccessToken())
                .toHTTPRequest()
                .send());
        if (!response.indicatesSuccess()) {
            throw new IllegalStateException(response.toErrorResponse().getErrorObject().toString());
        }
        return response.toSuccessResponse().getUserInfo().toJSONString();
    }

    static String refresh() throws Exception {
        tokens = request(new RefreshTokenGrant(tokens.getRefreshToken()));
        return profile();
    }

    static URI logout() {
        tokens = null;
        return new LogoutRequest(metadata.getEndSessionEndpointURI(), idToken, HERE.resolve("/signed-out"), null).toURI();
    }

    public static void main(String[] arguments) throws Exception {
        metadata = OIDCProviderMetadata.resolve(new Issuer(System.getenv("ISSUER")));
        HttpServer server = HttpServer.create(new InetSocketAddress("localhost", PORT), 0);
        server.createContext("/", exchange -> {
            String text;
            int status = 200;
            try {
                URI address = HERE.resolve(exchange.getRequestURI());
                Object result = switch (address.getPath()) {
                    case "/login" -> login();
                    case "/callback" -> callback(address);
                    case "/profile" -> profile();
                    case "/refresh" -> refresh();
                    case "/logout" -> logout();
                    default -> "signed out";
                };
                text = result.toString();
                if (result instanceof URI) {
                    status = 302;
                    exchange.getResponseHeaders().add("Location", text);
                }
            } catch (Exception error) {
                status = 500;
                text = error.toString();
            }
            exchange.sendResponseHeaders(status, text.getBytes().length);
            exchange.getResponseBody().write(text.getBytes());
            exchange.close();
        });
        server.start();
    }
}
