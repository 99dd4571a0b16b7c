package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

const (
	// readyTimeout bounds a check of all databases, readyFor is for how long its answer
	// is good.
	readyTimeout = 2 * time.Second
	readyFor     = time.Second
)

// Programs that restart processes, or route to them, seldom have credentials: these two
// answer to everybody. The first says that the process lives, the second, without
// credentials, yes or no.
const (
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

// Readiness reports whether a worker can do its work.
type Readiness struct {
	Ready bool `json:"ready"`
	// Reasons say what is wrong with the worker as a whole.
	Reasons   []string        `json:"reasons,omitempty"`
	Databases []DatabaseState `json:"databases"`
}

// DatabaseState tells what is wrong with one database.
type DatabaseState struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Required reports that the worker is not ready without it.
	Required bool     `json:"required"`
	Reasons  []string `json:"reasons,omitempty"`
}

// handler is everything that is served, behind its protection. On loopback only its names
// are answered to. Wrong credentials are warned of in refusals.
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
		var told any = state
		if VisitorOf(r.Context()) == (Visitor{}) {
			told = map[string]bool{"ready": state.Ready} // Names and errors of databases are not for all.
		}
		// A client that went away needs no answer.
		_ = json.NewEncoder(w).Encode(told)
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
		// Neither what was sent, be it the user alone, nor the path: people mistake one
		// field for another.
		refusals.WarnContext(r.Context(), "wrong credentials refused", "remote", newVisitor("", r).Remote)
	})
	protected := http.NewCrossOriginProtection().Handler(admitted)
	if loopback {
		protected = requireLocalHost(protected)
	}
	return limitRequests(secure(protected))
}
