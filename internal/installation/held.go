package installation

import (
	"context"
	"log/slog"

	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// NoteHeld says, in the log and to readers of the status, what the worker begins without.
func (b *Bound) NoteHeld(ctx context.Context, noted *riverjobs.Bindings, log *slog.Logger) {
	for kind, problems := range b.held {
		for _, db := range b.Databases {
			// The database that a definition is about does not fit, so it counts for each that the kind works on.
			if kind != riverjobs.LooseForeignKeys && db.Name != b.Jobs().Name {
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
