package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// The types that an argument of a job can have in SQL.
const (
	Text    = "text"
	Bigint  = "bigint"
	Boolean = "boolean"
)

// Kind is a job as enqueue knows it.
type Kind struct {
	// Row, if set, must exist for enqueue to accept a job.
	Row

	// Kind and Queue have 1 to 127 characters.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// Args are the types (Text, Bigint or Boolean) of the arguments by name. All of them make up the job's
	// unique key. Names consist of lower-case letters, digits and underscores.
	Args map[string]string `json:"args"`
	// Defaults are the values of arguments that may be left out: string, int, int64 or bool.
	Defaults map[string]any `json:"defaults"`
	// Cron marks a job that runs on a schedule, which enqueue accepts without a time only.
	Cron bool `json:"cron"`
	// MaxAttempts is how often River tries the job, 1 to 32767.
	MaxAttempts int `json:"max_attempts"`
}

// Row is the row of the application's that an argument names by an integer.
type Row struct {
	// Table is in the tracked schema.
	Table    string `json:"row_table,omitempty"`
	Column   string `json:"row_column,omitempty"`
	Argument string `json:"row_argument,omitempty"`
}

// writeKinds makes the table of kinds equal to the list.
func (s *session) writeKinds(ctx context.Context) error {
	if !s.db.Jobs {
		return nil
	}
	kinds := make([]Kind, len(s.db.Kinds))
	for i, k := range s.db.Kinds {
		if k.Args == nil {
			k.Args = map[string]string{}
		}
		if k.Defaults == nil {
			k.Defaults = map[string]any{}
		}
		kinds[i] = k
	}
	list, err := json.Marshal(kinds)
	if err != nil {
		return fmt.Errorf("encode job kinds: %w", err)
	}
	var changed int64
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, statement := range []string{sqlText("delete_kinds"), sqlText("upsert_kinds")} {
			tag, err := tx.Exec(ctx, s.replacer.Replace(statement), list)
			if err != nil {
				return err
			}
			changed += tag.RowsAffected()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write job kinds: %w", err)
	}
	if changed > 0 {
		s.log.InfoContext(ctx, "job_kinds_written", slog.String("database", s.db.Name), slog.Int64("changed", changed))
	}
	return nil
}

func (s *session) writeApplicationTables(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.replacer.Replace(sqlText("write_application_tables")), s.db.TrackedSchema, optionalTables())
	return problem.Doing(err, "note the application's tables")
}
