package placeholder

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// section is the key of the configuration that the references live under.
const section = "placeholder_users"

// Bind holds the entries against the database, whose own schema is the one of its users. Findings carry keys such as
// placeholder_users.references[3].columns[0] and no position. Errors: a missing table or column, a column that is no
// integer, one that is listed twice or that the role may not read. A warning: a column without an index. The references
// are nil where there is an error among them.
func Bind(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, entries []Reference) (*References, problem.List, error) {
	b := &binder{db: db, schema: names.Tracked, known: map[string]string{}}
	bound := &References{}
	if err := b.read(ctx, entries); err != nil {
		return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
	}
	for i, entry := range entries {
		columns, err := b.bind(ctx, fmt.Sprintf("%s.references[%d]", section, i), entry)
		if err != nil {
			return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
		}
		bound.columns = append(bound.columns, columns...)
	}
	if b.problems.Err() != nil {
		return nil, b.problems, nil
	}
	return bound, b.problems, nil
}

type binder struct {
	db       dbsqlc.DBTX
	schema   string
	tables   map[uint32]*pgcatalog.Relation
	problems problem.List
	// known is where a column, by its label, is named first.
	known map[string]string
}

func (b *binder) reportf(severity problem.Severity, key, fix, format string, args ...any) {
	b.problems.Add(problem.Problem{Severity: severity, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (b *binder) name(text string) (definitions.Name, error) {
	name, err := definitions.ParseName(text)
	if name.Schema == "" {
		name.Schema = b.schema
	}
	return name, err
}

// read reads the tables of all entries from the catalogue.
func (b *binder) read(ctx context.Context, entries []Reference) error {
	var schemas, tables []string
	for _, entry := range entries {
		if name, err := b.name(entry.Table); err == nil {
			schemas, tables = append(schemas, name.Schema), append(tables, name.Table)
		}
	}
	oids, err := pgcatalog.Named(ctx, b.db, schemas, tables)
	if err != nil {
		return err
	}
	b.tables, err = pgcatalog.Read(ctx, b.db, oids)
	return err
}

// bind binds the columns of one entry.
func (b *binder) bind(ctx context.Context, key string, entry Reference) ([]boundColumn, error) {
	table, err := b.table(ctx, key+".table", entry.Table)
	if table == nil || err != nil {
		return nil, err
	}
	readable, err := b.readable(ctx, table, entry.Columns)
	if err != nil {
		return nil, err
	}
	var columns []boundColumn
	for i, column := range entry.Columns {
		at, label := fmt.Sprintf("%s.columns[%d]", key, i), table.In(b.schema)+"."+column
		found, there := table.Columns[column]
		first, twice := b.known[label]
		switch {
		case !there:
			fix := problem.Meant(column, table.ColumnNames(), "correct the name, or remove it")
			b.reportf(problem.Error, at, fix, "table %s has no column %s", entry.Table, column)
		case twice:
			b.reportf(problem.Error, at, "remove one of them", "%s is named by %s already", label, first)
		case !pgcatalog.Integer(found.Base):
			b.reportf(problem.Error, at, "only integers can refer to users", "%s is of type %s", label, found.Type)
		case !slices.Contains(readable, column):
			b.reportf(problem.Error, at, fmt.Sprintf("GRANT SELECT ON TABLE %s TO the worker's role", table.SQL()), "the role may not read %s", label)
		case table.Unindexed(column) != "":
			b.reportf(problem.Warning, at, table.Unindexed(column),
				"no index of %s begins with %s, so every look at a placeholder reads the whole table", entry.Table, column)
		}
		b.known[label] = at
		columns = append(columns, bindColumn(label, table, column))
	}
	return columns, nil
}

// table returns the table that an entry names, or nil.
func (b *binder) table(ctx context.Context, key, text string) (*pgcatalog.Relation, error) {
	name, err := b.name(text)
	if err != nil {
		b.reportf(problem.Error, key, "", "table %q %v", text, err)
		return nil, nil
	}
	for _, table := range b.tables {
		switch {
		case table.Schema != name.Schema || table.Name != name.Table:
			continue
		case !table.IsTable():
			b.reportf(problem.Error, key, "name the table behind it", "%s is not a table", text)
			return nil, nil
		case table.IsPartition():
			b.reportf(problem.Error, key, "name the partitioned table", "%s is a partition", text)
			return nil, nil
		}
		return table, nil
	}
	rows, _ := b.db.Query(ctx, statement("names"), name.Schema)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for similar names: %w", err)
	}
	if name.Schema != b.schema {
		for i := range tables {
			tables[i] = name.Schema + "." + tables[i]
		}
		name.Table = name.Schema + "." + name.Table
	}
	b.reportf(problem.Error, key, problem.Meant(name.Table, tables, "create it, or remove the entry"), "table %s does not exist", text)
	return nil, nil
}

// readable are the columns that the role may read.
func (b *binder) readable(ctx context.Context, table *pgcatalog.Relation, columns []string) ([]string, error) {
	rows, _ := b.db.Query(ctx, statement("readable"), table.OID, columns)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return found, problem.Doing(err, "look up privileges")
}
