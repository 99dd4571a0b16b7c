package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/jobrun"
	"sexton/internal/operator"
	"sexton/internal/render"
	"sexton/internal/web"
)

const (
	// readTimeout limits a reading. readFor is the time for which a reading is cached.
	// The page is refreshed every two seconds.
	readTimeout = 5 * time.Second
	readFor     = 1500 * time.Millisecond
)

// policy is the Content-Security-Policy. The page may load files of this server only, and
// no inline scripts or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// Source reads the data of the page and makes its changes. *operator.PageSource
// implements it. Its methods may be called concurrently.
type Source interface {
	Overview(ctx context.Context) (operator.Overview, error)
	// History returns the backlog during the last span of time, with the highest value of
	// each bin.
	History(ctx context.Context, span, bin time.Duration) ([]jobrun.Series, error)
	// SetPaused pauses or resumes a kind of job on all workers, or all kinds if kind is
	// empty. A *components.RefusedError is shown to the user.
	SetPaused(ctx context.Context, by web.Visitor, kind, reason string, pause bool) error
	// Retry makes failed rows due now and returns a message about the result.
	Retry(ctx context.Context, by web.Visitor, what components.Retry) (string, error)
	// RunNow runs a scheduled kind without waiting for its tick.
	RunNow(ctx context.Context, by web.Visitor, kind string) error
	// CancelGroup restores a group on behalf of a user of the application.
	CancelGroup(ctx context.Context, by web.Visitor, groupID, userID string) error
	// Deletion returns a saved deletion, or nil if it is not saved. Undo restores its
	// rows, and returns a message about the result so far.
	Deletion(ctx context.Context, id int64) (*operator.Deletion, error)
	Undo(ctx context.Context, by web.Visitor, id int64) (string, error)
}

// Options are the options of a page.
type Options struct {
	Source Source
	// ReadOnly omits the buttons. The server, not the page, rejects requests for changes.
	ReadOnly bool
	// Version is the version of the program.
	Version string
	Logger  *slog.Logger
}

// Page serves the page, its fragments, its assets and its buttons.
type Page struct {
	options  Options
	html     *template.Template
	assets   assets
	overview *web.Cached[reading[operator.Overview]]
	history  histories
	mux      *http.ServeMux
}

var _ http.Handler = (*Page)(nil)

// New returns a page. It returns an error only if the embedded templates are invalid.
func New(options Options) (*Page, error) {
	p := &Page{options: options, history: newHistory(options.Source), assets: loadAssets(), mux: http.NewServeMux()}
	var err error
	if p.html, err = template.New("").Funcs(p.functions()).ParseFS(templateFiles, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	p.overview = &web.Cached[reading[operator.Overview]]{
		Timeout: readTimeout, Keep: readFor,
		Read: lasting(options.Source.Overview),
	}
	for _, address := range []string{"/{$}", "/jobs/{kind}", "/failures", "/deletions/{id}"} {
		p.mux.HandleFunc("GET "+address, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, "page") })
	}
	p.mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) { p.show(w, r, "live") })
	p.mux.HandleFunc("GET /history", p.serveHistory)
	p.mux.HandleFunc("GET /assets/{name}", p.assets.serve)
	for _, jobs := range []string{"/jobs", "/jobs/{kind}"} {
		p.mux.HandleFunc("POST "+jobs+"/pause", p.change(p.setPaused(true, "paused",
			"; a run in progress continues to its end")))
		p.mux.HandleFunc("POST "+jobs+"/resume", p.change(p.setPaused(false, "resumed", "")))
	}
	p.mux.HandleFunc("POST /jobs/{kind}/run", p.change(func(r *http.Request) (string, error) {
		return r.PathValue("kind") + " runs when a worker is free",
			options.Source.RunNow(r.Context(), web.VisitorOf(r.Context()), r.PathValue("kind"))
	}))
	p.mux.HandleFunc("POST /groups/{id}/cancel", p.change(p.cancelGroup))
	p.mux.HandleFunc("POST /failures/retry", p.change(p.retry))
	p.mux.HandleFunc("POST /deletions/{id}/undo", p.change(p.undo))
	return p, nil
}

// show renders the part of the page that the address selects.
func (p *Page) show(w http.ResponseWriter, r *http.Request, template string) {
	shown, code := p.newView(r.Context(), focusOf(r)), http.StatusOK
	if shown.Known && shown.missing() && template == "page" {
		code = http.StatusNotFound
	}
	p.render(w, code, template, shown)
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	p.mux.ServeHTTP(w, r)
}

// reading is the last successful result of a source, its time, and the error of the last
// call.
type reading[T any] struct {
	value T
	// at is the time when value was read. If err is set, value and at are from the last
	// successful call.
	at  time.Time
	err error
}

// lasting returns a function that calls read. If read fails, the function returns the
// last successful value with the error. It must not be called concurrently.
func lasting[T any](read func(context.Context) (T, error)) func(context.Context) reading[T] {
	var last reading[T]
	return func(ctx context.Context) reading[T] {
		value, err := read(ctx)
		if err != nil {
			last.err = err
			return last
		}
		last = reading[T]{value: value, at: time.Now()}
		return last
	}
}

// render sends a rendered template. It renders the whole template before it sends
// anything, so that an error of the template becomes an error response.
func (p *Page) render(w http.ResponseWriter, code int, name string, data any) {
	var out bytes.Buffer
	if err := p.html.ExecuteTemplate(&out, name, data); err != nil {
		p.options.Logger.Error("page_failed", "template", name, "error", err)
		http.Error(w, "the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = out.WriteTo(w)
}

func (p *Page) functions() template.FuncMap {
	return template.FuncMap{
		"asset": p.assets.url, "number": render.Grouped, "capped": render.Capped, "plural": plural, "span": span,
		"took":   took,
		"moment": momentAt, "sentence": sentence, "brief": brief, "next": nextTry,
		"rows":    func(r operator.Reason) string { return render.Capped(int64(len(r.Failures)), r.More) },
		"words":   func(state string) string { return strings.ReplaceAll(state, "_", " ") },
		"digest":  operator.DigestOf,
		"ending":  operator.Ending,
		"full":    func(n int64) bool { return n >= components.PendingCap },
		"outcome": outcomeText, "parts": func(name string) []string { return strings.Split(name, "_") },
	}
}

// refusal returns the status code and the message for a change that failed.
func refusal(err error) (code int, text string) {
	if refused, ok := errors.AsType[*components.RefusedError](err); ok {
		return http.StatusUnprocessableEntity, refused.Reason
	}
	return http.StatusInternalServerError, "the change failed; the worker's log has the error"
}

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// asset is one embedded file and the version of its content.
type asset struct {
	content []byte
	kind    string
	version string
}

// assets are the embedded files that the page loads, by name. htmx and uPlot are
// unchanged from npm. Their licenses are in the same folder.
type assets map[string]asset

// loadAssets reads the embedded files. It ignores errors, since embedded files are never
// missing.
func loadAssets() assets {
	all := assets{}
	entries, _ := assetFiles.ReadDir("assets")
	for _, entry := range entries {
		content, _ := assetFiles.ReadFile(path.Join("assets", entry.Name()))
		sum := sha256.Sum256(content)
		all[entry.Name()] = asset{
			content: content, kind: mime.TypeByExtension(path.Ext(entry.Name())),
			version: hex.EncodeToString(sum[:6]),
		}
	}
	return all
}

// url returns the URL of a file. It changes with the content, so that browsers may cache
// the file.
func (a assets) url(name string) (string, error) {
	file, ok := a[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return "/assets/" + name + "?v=" + file.version, nil
}

func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	file, ok := a[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	_, _ = w.Write(file.content)
}
