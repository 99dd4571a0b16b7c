package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"sexton/internal/config"
)

// credentials holds digests of the accepted credentials. Digests have the same length, so
// that a comparison always takes the same time.
type credentials struct {
	user, password, token          [sha256.Size]byte
	acceptsPassword, acceptsBearer bool
}

func newCredentials(settings config.HTTP) credentials {
	return credentials{
		user: digest(settings.User), password: digest(string(settings.Password)), token: digest(string(settings.Token)),
		acceptsPassword: settings.User != "" && settings.Password != "", acceptsBearer: settings.Token != "",
	}
}

func digest(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// any reports whether any credentials are configured.
func (c credentials) any() bool { return c.acceptsPassword || c.acceptsBearer }

// admit reports whether a request has the right credentials, and returns the actor for
// the audit record.
func (c credentials) admit(r *http.Request) (actor string, ok bool) {
	if user, password, ok := r.BasicAuth(); ok && c.acceptsPassword {
		sentUser, sentPassword := digest(user), digest(password)
		return user, subtle.ConstantTimeCompare(sentUser[:], c.user[:])&subtle.ConstantTimeCompare(sentPassword[:],
			c.password[:]) == 1
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !c.acceptsBearer || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	sent := digest(strings.TrimSpace(token))
	return bearer, subtle.ConstantTimeCompare(sent[:], c.token[:]) == 1
}

// require returns a handler that passes requests with the right credentials to next, with
// their Visitor. If no credentials are configured, it passes all requests. It also passes
// requests for healthPath, and reads of readyPath without credentials, but without a
// Visitor. It calls refused for wrong credentials.
func (c credentials) require(next http.Handler, refused func(*http.Request)) http.Handler {
	if !c.any() {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(withVisitor(r.Context(), newVisitor(anybody, r))))
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization") != ""
		if r.URL.Path == healthPath || r.URL.Path == readyPath && !sent && !changes(r) {
			// Close the connection, so that idle connections are left to clients with
			// credentials.
			w.Header().Set("Connection", "close")
			next.ServeHTTP(w, r)
			return
		}
		if actor, ok := c.admit(r); ok {
			next.ServeHTTP(w, r.WithContext(withVisitor(r.Context(), newVisitor(actor, r))))
			return
		}
		w.Header().Set("Connection", "close")
		if sent {
			refused(r)
		}
		if c.acceptsPassword {
			w.Header().Add("WWW-Authenticate", `Basic realm="sexton", charset="UTF-8"`)
		}
		if c.acceptsBearer {
			w.Header().Add("WWW-Authenticate", `Bearer realm="sexton"`)
		}
		http.Error(w, "user and password, or the token, are wrong or missing", http.StatusUnauthorized)
	})
}

// refuseChanges rejects requests that may change something.
func refuseChanges(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if changes(r) {
			http.Error(w, "this server is read-only: to allow changes, set http.read_only to false, and preferably http.user and a password",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// changes reports whether a request's method may change something.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// requireLocalHost rejects requests whose Host header is not a local name. Another site
// can let its name resolve to this machine, and its page would then have the same origin.
func requireLocalHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host) {
			http.Error(w, "this server accepts only localhost and loopback addresses as host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// secure sets headers that prevent framing, sniffing, storing and reading by other sites.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy",
			"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
