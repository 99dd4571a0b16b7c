package page

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sexton/internal/components"
	"sexton/internal/web"
)

const (
	// maxForm limits the body of a button's request, in bytes. maxReason is in
	// characters.
	maxForm   = 16 << 10
	maxReason = 200
)

// notice is the message about the result of a button's request.
type notice struct {
	Text   string
	Failed bool
}

// change returns the handler of a button's request. It calls do, and then sends the
// changed fragments to htmx, or redirects any other client to the page.
func (p *Page) change(do func(r *http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the form cannot be read", http.StatusBadRequest)
			return
		}
		message, err := do(r)
		code, fragments := http.StatusOK, r.Header.Get("Hx-Request") == "true"
		if err != nil {
			code, message = refusal(err)
			if code == http.StatusInternalServerError {
				p.options.Logger.ErrorContext(r.Context(), "change_failed", "path", r.URL.Path, "actor",
					web.VisitorOf(r.Context()).Actor, "error", err)
			}
		}
		p.overview.Forget()
		switch {
		case fragments:
			shown := p.newView(r.Context(), focusOf(r))
			shown.Notice = notice{Text: sentence(message) + ".", Failed: err != nil}
			p.render(w, code, "live", shown)
		case err != nil:
			http.Error(w, message, code)
		default:
			http.Redirect(w, r, "/", http.StatusSeeOther)
		}
	}
}

// reason returns the reason that a form contains, without characters that would break a
// line of a log or a table.
func reason(r *http.Request) (string, error) {
	text := strings.Join(strings.Fields(r.PostForm.Get("reason")), " ")
	if utf8.RuneCountInString(text) > maxReason {
		return "", components.Refuse("the reason is longer than %d characters", maxReason)
	}
	// Postgres rejects a zero byte, and other control characters can change a terminal.
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", components.Refuse("the reason contains control characters or invalid UTF-8")
	}
	return text, nil
}

// setPaused returns the action of a button that pauses or resumes a kind, or all kinds,
// with a reason.
func (p *Page) setPaused(pause bool, verb, note string) func(r *http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		why, err := reason(r)
		if err != nil {
			return "", err
		}
		kind := r.PathValue("kind")
		return verb + " " + cmp.Or(kind, "all jobs") + note,
			p.options.Source.SetPaused(r.Context(), web.VisitorOf(r.Context()), kind, why, pause)
	}
}

func (p *Page) retry(r *http.Request) (string, error) {
	what := components.Retry{
		Source: r.PostForm.Get("source"), Database: r.PostForm.Get("database"), ID: r.PostForm.Get("id"),
		Reason: r.PostForm.Get("reason"),
	}
	return p.options.Source.Retry(r.Context(), web.VisitorOf(r.Context()), what)
}

func (p *Page) undo(r *http.Request) (string, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return "", components.Refuse("the ID of a deletion must be a number")
	}
	return p.options.Source.Undo(r.Context(), web.VisitorOf(r.Context()), id)
}

// cancelGroup restores a group on behalf of the user of the application that the form
// names.
func (p *Page) cancelGroup(r *http.Request) (string, error) {
	group, user := r.PathValue("id"), r.PostForm.Get("user")
	if user == "" {
		return "", components.Refuse("enter the ID of the user on whose behalf the group is kept")
	}
	return fmt.Sprintf("group %s is kept", group), p.options.Source.CancelGroup(r.Context(), web.VisitorOf(r.Context()),
		group, user)
}
