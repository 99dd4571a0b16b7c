package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

const (
	// readyTimeout limits a check of all databases. readyFor is how long its result is
	// cached.
	readyTimeout = 2 * time.Second
	readyFor     = time.Second
)

// Programs that restart processes, or route to them, seldom have credentials, so these
// paths need none. Without credentials, readyPath returns only yes or no.
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

// handler returns the handler of all paths, with its protection. With loopback it accepts
// only local host names. It logs wrong credentials to refusals.
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
			answer = map[string]bool{"ready": state.Ready} // Names and errors of databases need credentials.
		}
		// If the client has closed the connection, nobody needs the error.
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
		// Log neither the sent user nor the path: people type passwords into the wrong
		// field.
		refusals.WarnContext(r.Context(), "credentials_refused", "remote", newVisitor("", r).Remote)
	})
	protected := http.NewCrossOriginProtection().Handler(admitted)
	if loopback {
		protected = requireLocalHost(protected)
	}
	return limitRequests(secure(protected))
}
