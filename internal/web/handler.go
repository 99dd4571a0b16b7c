package web

import (
	"encoding/json"
	"net/http"
	"time"

	"sexton/internal/recent"
)

const (
	// readyTimeout bounds a check of all databases, readyFor is for how long its answer is good.
	readyTimeout = 2 * time.Second
	readyFor     = time.Second
)

// healthPath tells nothing but that the process lives, and whoever restarts processes seldom has credentials.
const healthPath = "/healthz"

// Readiness tells whether a worker can do its work.
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
	// Required tells that the worker is not ready without it.
	Required bool     `json:"required"`
	Reasons  []string `json:"reasons,omitempty"`
}

// handler is everything that is served, behind its protection. On loopback only its names are answered to.
func (s *Server) handler(loopback bool) http.Handler {
	ready := &recent.Value[Readiness]{Read: s.Ready, Timeout: readyTimeout, Keep: readyFor}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Metrics)
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state, code := ready.Get(r.Context()), http.StatusOK
		if !state.Ready {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		// Whoever went away needs no answer.
		_ = json.NewEncoder(w).Encode(state)
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
	protected := http.NewCrossOriginProtection().Handler(newCredentials(s.Settings).require(served))
	if loopback {
		protected = requireLocalHost(protected)
	}
	return secure(protected)
}
