package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

// commentOn is the beginning of the statement in a function's file that has the
// function's argument types. signature matches the rest of that line.
const commentOn = "\nCOMMENT ON FUNCTION "

var signature = regexp.MustCompile(`^("sexton"\.\w+\([^)]*\)) IS`)

// function is a database function from package sqlfiles, rendered with the configured
// names.
type function struct {
	name, text string
	// replaceable is true if the application may replace the function.
	replaceable bool
}

// functions returns the functions in the component's folder. For tables other than
// GitLab's, files in the folder any replace files of the same name.
func (c component) functions(db Database, snap snapshot) (found []function) {
	files, _ := fs.Glob(sqlfiles.Functions, path.Join("functions", c.name, "*.sql"))
	replacer := db.replacer(snap, c.name)
	for _, file := range files {
		data, err := fs.ReadFile(sqlfiles.Functions, path.Join(path.Dir(file), "any", path.Base(file)))
		if err != nil || db.gitlab(c.name) {
			data, _ = fs.ReadFile(sqlfiles.Functions, file)
		}
		text := strings.ReplaceAll(string(data), pgcatalog.TextClausesHere, pgcatalog.TextClauses)
		if !strings.Contains(string(data), "CREATE") {
			continue // The file is empty, because only GitLab's tables need this function.
		}
		f := function{name: strings.TrimSuffix(path.Base(file), ".sql"), text: replacer.Replace(text)}
		_, comment, commented := strings.Cut(string(data), commentOn)
		if match := signature.FindStringSubmatch(comment); match != nil {
			f.text += replacer.Replace("\nREVOKE ALL ON FUNCTION " + match[1] + " FROM PUBLIC;\n")
		}
		f.replaceable = !commented
		found = append(found, f)
	}
	return found
}

// functionsDiffer reports whether one of the component's functions is missing or has
// another body than in this release.
func (db Database) functionsDiffer(snap snapshot, c component) bool {
	return slices.ContainsFunc(c.functions(db, snap), func(f function) bool {
		body, there := snap.bodies[f.name]
		return !there || !f.replaceable && !strings.Contains(f.text, body)
	})
}

// missingFunctions returns the functions of the component that do not exist.
func (db Database) missingFunctions(snap snapshot, c component) (missing []string) {
	for _, f := range c.functions(db, snap) {
		if _, there := snap.bodies[f.name]; !there {
			missing = append(missing, "function "+identity(schema, f.name))
		}
	}
	return missing
}

// These constants are the types of job arguments in SQL.
const (
	Text   = "text"
	Bigint = "bigint"
	// Key accepts a bigint or a text.
	Key     = "key"
	Boolean = "boolean"
)

// Kind is a job kind that enqueue accepts.
type Kind struct {
	// Row, if set, describes the row that must exist for enqueue to accept a job.
	Row

	// Kind and Queue have 1 to 127 characters.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// Args holds the types (Text, Bigint, Key or Boolean) of the arguments by name. All
	// arguments together are the job's unique key. Names consist of lower-case letters,
	// digits and underscores.
	Args map[string]string `json:"args"`
	// Defaults holds the values of optional arguments: string, int, int64 or bool.
	Defaults map[string]any `json:"defaults"`
	// Databases holds the valid values of the argument "database". It is nil if the kind
	// has no such argument.
	Databases []string `json:"databases,omitempty"`
	// Cron marks a kind with a schedule. enqueue accepts no time for its jobs.
	Cron bool `json:"cron"`
	// MaxAttempts is the maximum number of attempts by River, 1 to 32767.
	MaxAttempts int `json:"max_attempts"`
}

// Row describes the application's row that an argument refers to.
type Row struct {
	// Table is a table in the tracked schema.
	Table    string `json:"row_table,omitempty"`
	Column   string `json:"row_column,omitempty"`
	Argument string `json:"row_argument,omitempty"`
}

// writeKinds makes the table of job kinds equal to the configured kinds.
func (s *session) writeKinds(ctx context.Context, tx pgx.Tx) error {
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
	for _, statement := range []string{sqlText("delete_kinds"), sqlText("upsert_kinds")} {
		// The argument is a string, because the simple protocol would send bytes as a
		// bytea.
		tag, err := tx.Exec(ctx, statement, string(list))
		if err != nil {
			return fmt.Errorf("write job kinds: %w", err)
		}
		changed += tag.RowsAffected()
	}
	if changed > 0 {
		s.log.InfoContext(ctx, "job_kinds_written", slog.String("database", s.db.Name), slog.Int64("changed", changed))
	}
	return nil
}

// writeApplicationTables records which optional tables exist.
func (s *session) writeApplicationTables(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, sqlText("write_application_tables"), s.db.TrackedSchema, optionalTables())
	return problem.Doing(err, "record the application's tables")
}
