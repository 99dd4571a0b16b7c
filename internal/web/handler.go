package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

const (
	// readyTimeout limits a check of all databases. readyFor is the time for which its
	// result is cached.
	readyTimeout = 2 * time.Second
	readyFor     = time.Second
)

// The paths of health checks need no credentials, because programs that restart
// processes, or route to them, seldom have any. Without credentials, readyPath returns
// only true or false.
const (
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

// Readiness reports whether a worker can do its work.
type Readiness struct {
	Ready bool `json:"ready"`
	// Reasons are the problems of the worker itself.
	Reasons   []string        `json:"reasons,omitempty"`
	Databases []DatabaseState `json:"databases"`
}

// DatabaseState reports the problems of one database.
type DatabaseState struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Required reports that the worker is not ready without it.
	Required bool     `json:"required"`
	Reasons  []string `json:"reasons,omitempty"`
}

// handler returns the handler of all paths, with the checks of hosts and credentials. If
// loopback is true, it accepts only local host names. It passes wrong credentials to
// refusals, which logs them.
func (s *Server) handler(loopback bool, refusals *slog.Logger) http.Handler {
	ready := &Cached[Readiness]{Read: s.Ready, Timeout: readyTimeout, Keep: readyFor}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Metrics)
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, r *http.Request) {
		state, code := ready.Get(r.Context()), http.StatusOK
		if !state.Ready {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		var answer any = state
		if VisitorOf(r.Context()) == (Visitor{}) {
			// Names and errors of databases are sent only to clients with credentials.
			answer = map[string]bool{"ready": state.Ready}
		}
		// An error means that the client has closed the connection.
		_ = json.NewEncoder(w).Encode(answer)
	})
	if s.River != nil {
		mux.Handle(RiverPath, s.riverHandler())
	}
	if s.Page != nil {
		mux.Handle("/", s.Page)
	}
	var served http.Handler = mux
	if s.Settings.ReadOnly {
		served = refuseChanges(mux)
	}
	admitted := newCredentials(s.Settings).require(served, func(r *http.Request) {
		// Do not log the user name or the path, because people type passwords into the
		// wrong field.
		refusals.WarnContext(r.Context(), "credentials_refused", "remote", newVisitor("", r).Remote)
	})
	protected := http.NewCrossOriginProtection().Handler(admitted)
	if loopback {
		protected = requireLocalHost(protected)
	}
	return limitRequests(secure(protected))
}
