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
	// readTimeout bounds a reading, readFor is for how long it is shared. The page asks
	// every two seconds.
	readTimeout = 5 * time.Second
	readFor     = 1500 * time.Millisecond
)

// policy lets the page load what comes from here, and nothing that stands inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// Source serves the page's readings and changes: a *operator.PageSource. It may be called
// by several requests at a time.
type Source interface {
	Overview(ctx context.Context) (operator.Overview, error)
	// History is the backlog of the last span, the highest value of each bin.
	History(ctx context.Context, span, bin time.Duration) ([]jobrun.Series, error)
	// SetPaused pauses or resumes a kind of job, or all where none is named, on all
	// workers. A *components.RefusedError is shown to the user.
	SetPaused(ctx context.Context, by web.Visitor, kind, reason string, pause bool) error
	// Retry has failed rows tried again now and says what came of it.
	Retry(ctx context.Context, by web.Visitor, what components.Retry) (string, error)
	// RunNow has a kind with a schedule run without waiting for its tick.
	RunNow(ctx context.Context, by web.Visitor, kind string) error
	// CancelGroup restores a group on behalf of a user of the application.
	CancelGroup(ctx context.Context, by web.Visitor, groupID, userID string) error
	// Deletion is one that is kept, nil where it is not. Undo takes it back, and says
	// what came of it by then.
	Deletion(ctx context.Context, id int64) (*operator.Deletion, error)
	Undo(ctx context.Context, by web.Visitor, id int64) (string, error)
}

// Options make a page.
type Options struct {
	Source Source
	// ReadOnly leaves the buttons out. Refusing the requests is the server's part.
	ReadOnly bool
	// Version is the program's.
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

// New makes a page. An error means that the program was built wrongly.
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
			"; a running pass continues to its end")))
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

// show answers with what the address names.
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

// reading is the answer of a source and its time.
type reading[T any] struct {
	value T
	// at is when the value was read. With an error it is the last one that could be had.
	at  time.Time
	err error
}

// lasting keeps the last good reading beside an error. Its sharers call it one at a time.
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

// render answers with a template. It is rendered before anything is sent, so that an
// answer is whole or an error.
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

// refusal words the answer to a user whose change was not made.
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

// asset is one file, known by its content.
type asset struct {
	content []byte
	kind    string
	version string
}

// assets are the files that the page loads, by name. htmx and uPlot are as published on
// npm, their licenses beside them.
type assets map[string]asset

// loadAssets reads them. As parts of the program they are never missing.
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

// url is where a file is. It changes with the content, so that browsers may keep it.
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
