package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"strings"

	"sexton/internal/render"
)

// RiverPath is the path of River UI.
const RiverPath = "/river/"

const (
	// riverAPI is the path prefix of River's API.
	riverAPI = RiverPath + "api/"
	// maxChange limits the body of a request that changes something, in bytes. River's
	// requests contain job IDs.
	maxChange = 64 << 10
	// riverPolicy lets River UI load only from this server. It allows inline styles,
	// because the components of River UI set them.
	riverPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// homeLink is the link from River UI back to the operator's page.
const homeLink = `<a href="/" style="position:fixed;right:.75rem;bottom:.75rem;z-index:60;padding:.3rem .7rem;border-radius:.5rem;` +
	`background:#2a6a4a;color:#fff;font:500 14px/1.4 system-ui,sans-serif;text-decoration:none">← Sexton</a>`

// Change is a change that a visitor requests of River.
type Change struct {
	// Action is one word, such as retry. Target names the objects, such as "jobs 7, 8" or
	// "queue users".
	Action string
	Target string
}

// riverHandler serves River UI. It records every change before it is made. It hides the
// arguments of jobs unless Settings.ShowArgs is set.
func (s *Server) riverHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", riverPolicy)
		if changes(r) && !s.recordChange(w, r) {
			return
		}
		api := strings.HasPrefix(r.URL.Path, riverAPI)
		if api && s.Settings.ShowArgs || !api && path.Ext(r.URL.Path) != "" {
			s.River.ServeHTTP(w, r)
			return
		}
		answer := &buffered{header: http.Header{}, code: http.StatusOK}
		s.River.ServeHTTP(answer, r)
		if !api {
			// Append the link to the body. The scripts of River UI only replace the
			// content of another element.
			answer.header.Del("Content-Length")
			page := bytes.Replace(answer.body.Bytes(), []byte("</body>"), []byte(homeLink+"</body>"), 1)
			answer.body = *bytes.NewBuffer(page)
		}
		answer.send(w)
	})
}

// recordChange records a change and reports whether it may be made. If it returns false,
// it has sent the error response.
func (s *Server) recordChange(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChange))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		// An error means that the client has closed the connection.
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := s.Record(r.Context(), VisitorOf(r.Context()), riverChange(r.URL.Path, body)); err != nil {
		s.Logger.ErrorContext(r.Context(), "change_not_recorded", "path", r.URL.Path, "error",
			err)
		http.Error(w, "the change was not made because it cannot be recorded", http.StatusServiceUnavailable)
		return false
	}
	return true
}

// riverChange describes a request to River: POST jobs/ACTION with ids in its body, PUT
// queues/NAME/ACTION, or PATCH queues/NAME.
func riverChange(path string, body []byte) Change {
	parts := strings.Split(strings.TrimPrefix(path, riverAPI), "/")
	switch {
	case len(parts) == 3 && parts[0] == "queues":
		return Change{Action: parts[2], Target: "queue " + parts[1]}
	case len(parts) == 2 && parts[0] == "queues":
		return Change{Action: "update", Target: "queue " + parts[1]}
	case len(parts) == 2 && parts[0] == "jobs":
		var jobs struct {
			IDs []json.Number `json:"ids"`
		}
		// River refuses a malformed body.
		_ = json.Unmarshal(body, &jobs)
		return Change{Action: parts[1], Target: "jobs " + strings.Join(render.Each(jobs.IDs, json.Number.String), ", ")}
	}
	return Change{Action: "change", Target: path}
}

// buffered holds a response that is changed before it is sent.
type buffered struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (h *buffered) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *buffered) WriteHeader(code int) { h.code = code }

// Write implements http.ResponseWriter.
func (h *buffered) Write(p []byte) (int, error) { return h.body.Write(p) }

// send sends the response without the arguments of jobs. A response that is not JSON,
// such as an error of River, is sent unchanged.
func (h *buffered) send(w http.ResponseWriter) {
	body := h.body.Bytes()
	decoder := json.NewDecoder(bytes.NewReader(body))
	// A float64 cannot represent all job IDs.
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err == nil {
		if cleaned, err := json.Marshal(withoutArgs(document)); err == nil {
			body = cleaned
		}
	}
	header := w.Header()
	maps.Copy(header, h.header)
	header.Del("Content-Length")
	w.WriteHeader(h.code)
	_, _ = w.Write(body)
}

// withoutArgs replaces all values with the key args in a JSON document.
func withoutArgs(document any) any {
	switch at := document.(type) {
	case []any:
		for i := range at {
			at[i] = withoutArgs(at[i])
		}
	case map[string]any:
		for key, value := range at {
			if key == "args" {
				at[key] = map[string]any{"hidden": "http.show_args is off"}
				continue
			}
			at[key] = withoutArgs(value)
		}
	}
	return document
}
