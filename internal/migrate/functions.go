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

// described begins the line of a file by which the function's arguments are known,
// signature matches the rest of it.
const described = "\nCOMMENT ON FUNCTION "

var signature = regexp.MustCompile(`^("sexton"\.\w+\([^)]*\)) IS`)

// function is a file of package sqlfiles with the configured names.
type function struct {
	name, text string
	// replaceable is set for a function that the application may replace.
	replaceable bool
}

// functions reads the component's folder. For users without GitLab's shape, files of its
// folder any take the place of those of the same name.
func (c component) functions(db Database, look inspection) (found []function) {
	files, _ := fs.Glob(sqlfiles.Functions, path.Join("functions", c.name, "*.sql"))
	replacer := db.replacer(look, c.name)
	for _, file := range files {
		data, err := fs.ReadFile(sqlfiles.Functions, path.Join(path.Dir(file), "any", path.Base(file)))
		if err != nil || db.gitlab(c.name) {
			data, _ = fs.ReadFile(sqlfiles.Functions, file)
		}
		text := strings.ReplaceAll(string(data), pgcatalog.TextClausesHere, pgcatalog.TextClauses)
		if !strings.Contains(string(data), "CREATE") {
			continue // Only GitLab's tables need it.
		}
		f := function{name: strings.TrimSuffix(path.Base(file), ".sql"), text: replacer.Replace(text)}
		_, comment, commented := strings.Cut(string(data), described)
		if match := signature.FindStringSubmatch(comment); match != nil {
			f.text += replacer.Replace("\nREVOKE ALL ON FUNCTION " + match[1] + " FROM PUBLIC;\n")
		}
		f.replaceable = !commented
		found = append(found, f)
	}
	return found
}

// functionsDiffer reports whether one of the component's functions is missing or has
// another body than this release's.
func (db Database) functionsDiffer(look inspection, c component) bool {
	return slices.ContainsFunc(c.functions(db, look), func(f function) bool {
		body, there := look.bodies[f.name]
		return !there || !f.replaceable && !strings.Contains(f.text, body)
	})
}

// lackingFunctions names the functions of the component that do not exist.
func (db Database) lackingFunctions(look inspection, c component) (missing []string) {
	for _, f := range c.functions(db, look) {
		if _, there := look.bodies[f.name]; !there {
			missing = append(missing, "function "+identity(schema, f.name))
		}
	}
	return missing
}

// The types that an argument of a job can have in SQL.
const (
	Text   = "text"
	Bigint = "bigint"
	// Key is a bigint, or a text.
	Key     = "key"
	Boolean = "boolean"
)

// Kind is a job as enqueue knows it.
type Kind struct {
	// Row, if set, must exist for enqueue to accept a job.
	Row

	// Kind and Queue have 1 to 127 characters.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// Args are the types (Text, Bigint or Boolean) of the arguments by name. All of them
	// make up the job's unique key. Names consist of lower-case letters, digits and
	// underscores.
	Args map[string]string `json:"args"`
	// Defaults are the values of arguments that may be left out: string, int, int64 or
	// bool.
	Defaults map[string]any `json:"defaults"`
	// Databases are the values that the argument "database" may have; nil if the kind has
	// no such argument.
	Databases []string `json:"databases,omitempty"`
	// Cron marks a job that runs on a schedule, which enqueue accepts without a time
	// only.
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
		tag, err := tx.Exec(ctx, statement, string(list)) // Bytes would become a bytea in the simple protocol.
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

func (s *session) writeApplicationTables(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, sqlText("write_application_tables"), s.db.TrackedSchema, optionalTables())
	return problem.Doing(err, "note the application's tables")
}
