package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"unicode/utf8"

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

// argumentName leaves out what JSON encoders write in different ways.
var argumentName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// checkKinds returns everything that is wrong with the kinds.
func (db Database) checkKinds() error {
	var problems []error
	seen := map[string]bool{}
	for _, k := range db.Kinds {
		if seen[k.Kind] {
			problems = append(problems, fmt.Errorf("job kind %q: it is there twice", k.Kind))
		}
		seen[k.Kind] = true
		problems = append(problems, k.check())
	}
	return errors.Join(problems...)
}

func (k Kind) check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("job kind %q: "+format, append([]any{k.Kind}, args...)...))
	}
	if n := utf8.RuneCountInString(k.Kind); n < 1 || n > 127 {
		wrong("its name has %d characters, not 1 to 127", n)
	}
	if n := utf8.RuneCountInString(k.Queue); n < 1 || n > 127 {
		wrong("its queue's name has %d characters, not 1 to 127", n)
	}
	if k.MaxAttempts < 1 || k.MaxAttempts > math.MaxInt16 {
		wrong("it has %d attempts, not 1 to %d", k.MaxAttempts, math.MaxInt16)
	}
	for name, kind := range k.Args {
		if !argumentName.MatchString(name) {
			wrong("the name of argument %q is not made of a-z, 0-9 and _", name)
		}
		if kind != Text && kind != Bigint && kind != Boolean {
			wrong("argument %q has the type %q, not text, bigint or boolean", name, kind)
		}
	}
	for name, value := range k.Defaults {
		if kind, there := k.Args[name]; !there {
			wrong("there is a default for %q, which is no argument", name)
		} else if !fitsType(kind, value) {
			wrong("the default of argument %q is %v (%T), not %s", name, value, value, kind)
		}
	}
	if k.Row != (Row{}) && k.Args[k.Argument] != Bigint {
		wrong("argument %q, which names a row of %s, is no bigint of its arguments", k.Argument, k.Table)
	}
	return errors.Join(problems...)
}

func fitsType(kind string, value any) bool {
	switch value.(type) {
	case string:
		return kind == Text
	case int, int64:
		return kind == Bigint
	case bool:
		return kind == Boolean
	default:
		return false
	}
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
