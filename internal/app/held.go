package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// noteHeld says, in the log and to readers of the status, what the worker begins without.
func (b *bound) noteHeld(ctx context.Context, noted *riverjobs.Bindings, log *slog.Logger) {
	for kind, problems := range b.held {
		for _, db := range b.databases {
			// The database that a definition is about does not fit, so it counts for each that the kind works on.
			if kind != riverjobs.LooseForeignKeys && db.Name != b.jobs().Name {
				continue
			}
			noted.NoteWrong(kind, db.Name, texts(problems))
		}
		for _, p := range problems {
			log.ErrorContext(ctx, "configuration does not fit the database: what it is about waits", "kind", kind, "error", p.String())
		}
	}
}

func texts(problems problem.List) []string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.String()
	}
	return out
}

// hold takes what a worker holds of a kind and database into the reason to wait.
func (o *obstacles) hold(held []string, kind, database string) {
	var reasons []string
	for _, line := range held {
		if reason, is := strings.CutPrefix(line, kind+"/"+database+": "); is {
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) == 0 {
		return
	}
	o.held = "a configuration that fits the database: " + reasons[0]
	if more := len(reasons) - 1; more > 0 {
		o.held += fmt.Sprintf(" (and %d more)", more)
	}
}
