package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// survey holds the part of the catalog about the children of definitions and about all
// tables with foreign keys.
type survey struct{ *dml.Catalog }

// readOnly runs do in a READ ONLY transaction with the given timeout and settings.
func readOnly(ctx context.Context, db pgcatalog.Beginner, timeout time.Duration, settings string,
	do func(pgx.Tx) error,
) error {
	timeout = max(timeout, time.Millisecond) // A timeout of 0 would mean no timeout.
	return loosefk.Bounds{StatementTimeout: timeout, LockTimeout: timeout}.Read(ctx, db, settings, do)
}

// readSurvey reads the catalog in a fixed number of statements.
func readSurvey(ctx context.Context, site Site, sites []Site, timeout time.Duration) (s survey, err error) {
	var oids []uint32
	for _, home := range sites {
		for _, parent := range home.Parents {
			if home.Name == site.Name {
				oids = append(oids, parent.OID)
			}
		}
		for _, reference := range loosefk.UsableIn(site.Name, home.Parents) {
			oids = append(oids, reference.Child.OID)
		}
	}
	err = readOnly(ctx, site.DB, timeout, pgcatalog.Pinned(), func(tx pgx.Tx) (err error) {
		s.Catalog, err = dml.Read(ctx, tx, oids)
		return err
	})
	return s, problem.Doing(err, "read the catalog")
}

// need describes an index that deletions need to find the rows of a table with given
// values in columns.
type need struct {
	table   *pgcatalog.Relation
	columns []string
	// list reports that columns are compared with a list of values, for which a hash
	// index cannot be used.
	list bool
	// given are columns that the same statements compare too, so an index may have them
	// before the others.
	given []string
	// indexed holds the tables of a definition's child with an index for its statements.
	// It is nil for statements of native foreign keys.
	indexed map[uint32]bool
	// proven holds the partitions in which Postgres uses a partial index.
	proven map[uint32]bool
	// path is the chain of foreign keys from the child to the table, for users. It is ""
	// for the child itself.
	path string
	// reader names the statement that reads the whole table without the index.
	reader string
}

// childNeed returns the index that a definition's own statements need. The table of the
// result is nil if the child has just been dropped.
func (s survey) childNeed(reference *loosefk.Reference, proven map[uint32]bool) need {
	n := need{
		table: s.Relations[reference.Child.OID], columns: reference.Definition.Columns, list: true,
		indexed: reference.Indexed, proven: proven,
	}
	n.reader = "every statement"
	for _, condition := range reference.Conditions {
		n.given = append(n.given, condition.Column)
	}
	return n
}

// below follows the native foreign keys to a table whose rows are deleted. For each of
// these keys Postgres searches for referencing rows, and ON DELETE CASCADE deletes these
// rows in turn. below returns the needed indexes, those on the shortest paths first, and
// the tables whose rows are deleted.
func (s survey) below(child *pgcatalog.Relation) (needs []need, deletedFrom []*pgcatalog.Relation) {
	actions := map[pgcatalog.Action]string{
		pgcatalog.Cascade: "CASCADE", pgcatalog.SetNull: "SET NULL", pgcatalog.SetDefault: "SET DEFAULT",
		pgcatalog.Restrict: "RESTRICT", pgcatalog.NoAction: "NO ACTION",
	}
	if child == nil {
		return nil, nil
	}
	seen := map[string]bool{}
	queue := []need{{table: child, path: child.Label()}}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if slices.Contains(deletedFrom, at.table) {
			continue // A shorter path led to the table, or the keys form a cycle.
		}
		deletedFrom = append(deletedFrom, at.table)
		for _, key := range s.Keys {
			from, to := s.Relations[key.Table], s.Relations[key.Target]
			if from == nil || to == nil || !related(at.table, to) {
				continue
			}
			path := fmt.Sprintf("%s → %s (%s) ON DELETE %s", at.path, from.Label(), strings.Join(key.Columns, ", "),
				actions[key.OnDelete])
			found := need{
				table: from, columns: key.Columns, path: path,
				reader: "every deleted row of " + at.table.Label(),
			}
			if name := fmt.Sprintf("%d %q", key.Table, key.Columns); !seen[name] {
				seen[name] = true
				needs = append(needs, found)
			}
			if key.OnDelete == pgcatalog.Cascade {
				queue = append(queue, found)
			}
		}
	}
	return needs, deletedFrom
}

// related reports whether a row can be in both tables: they are equal, or one is a
// partition of the other.
func related(a, b *pgcatalog.Relation) bool {
	return a.OID == b.OID || a.Root == b.Root && slices.ContainsFunc(a.Leaves,
		func(leaf pgcatalog.Table) bool { return slices.Contains(b.Leaves, leaf) })
}
