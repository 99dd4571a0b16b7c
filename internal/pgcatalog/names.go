package pgcatalog

import (
	"context"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/dbsqlc"
)

// Schema is the schema of Sexton's own objects.
const Schema = "sexton"

// Names holds the schemas of the application in one database.
type Names struct {
	// Tracked is the schema of the tracked tables and their tombstones
	// (databases.<name>.schema).
	Tracked string
	// Path is the search_path of the application's triggers
	// (databases.<name>.search_path). An empty path means the default of the session.
	Path string
	// GroupViews reports that groups and their schedules are views in Sexton's schema.
	GroupViews bool
}

// GroupsComment returns the comment of the view of groups. The comment names the table,
// the key and, if there is one, the parent column that the view was created for.
func GroupsComment(schema, table, key, parent string) string {
	text := "Sexton: groups of " + Quote(schema) + "." + Quote(table) + " by " + Quote(key)
	if parent != "" {
		text += " below " + Quote(parent)
	}
	return text
}

// Render replaces the placeholder "public" in SQL by the quoted name of the tracked
// schema.
func (n Names) Render(sql string) string {
	if n.GroupViews {
		sql = strings.NewReplacer(`"public".groups`, `"sexton".groups`, `"public".group_deletion_schedules`,
			`"sexton".group_deletion_schedules`).Replace(sql)
	}
	if n.Tracked == "public" {
		return sql
	}
	return strings.ReplaceAll(sql, `"public".`, pgx.Identifier{n.Tracked}.Sanitize()+".")
}

// Queries returns the generated queries, rendered for these schemas, on a pool, a
// connection or a transaction.
func (n Names) Queries(db dbsqlc.DBTX) *dbsqlc.Queries {
	return dbsqlc.New(n.On(db))
}

// On returns a pool, a connection or a transaction that renders statements for these
// schemas.
func (n Names) On(db dbsqlc.DBTX) dbsqlc.DBTX { return renderer{names: n, db: db} }

type renderer struct {
	names Names
	db    dbsqlc.DBTX
}

func (r renderer) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return r.db.Exec(ctx, r.names.Render(sql), args...)
}

func (r renderer) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return r.db.Query(ctx, r.names.Render(sql), args...)
}

func (r renderer) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return r.db.QueryRow(ctx, r.names.Render(sql), args...)
}

// Texts holds the statements of a package, each in a file queries/NAME.sql. A name in
// braces is replaced by the part with that name, or else by the text of the file with
// that name. Other names in braces are kept.
type Texts struct {
	Files fs.FS
	Parts map[string]string
}

var braced = regexp.MustCompile(`\{[a-z_]+\}`)

// Statement returns the statement in a file with the names in braces replaced. more has
// further parts, each a name followed by its text.
func (t Texts) Statement(name string, more ...string) string { return t.Fill("{"+name+"}", more...) }

// Fill returns a text with the names in braces replaced.
func (t Texts) Fill(text string, more ...string) string {
	return braced.ReplaceAllStringFunc(text, func(name string) string {
		key := name[1 : len(name)-1]
		for i := 0; i < len(more); i += 2 {
			if more[i] == key {
				return t.Fill(more[i+1], more...)
			}
		}
		if part, known := t.Parts[key]; known {
			return t.Fill(part, more...)
		}
		if file, err := fs.ReadFile(t.Files, "queries/"+key+".sql"); err == nil {
			return t.Fill(strings.TrimSuffix(string(file), "\n"), more...)
		}
		return name
	})
}
