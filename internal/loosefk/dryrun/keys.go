package dryrun

import (
	"fmt"
	"strings"

	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// need is an index that deletions need: equality of columns, in one table.
type need struct {
	table   uint32
	columns []string
	// list tells that columns are compared with a list of values, which a hash index cannot look up.
	list bool
	// given are columns that the same statements compare as well, so that an index may have them in front.
	given []string
	// indexed are the tables of a definition's child in which an index serves its statements; nil where these are Postgres's own.
	indexed map[uint32]bool
	// proven are partitions in which Postgres uses a partial index for it.
	proven map[uint32]bool
	// path is the way from the child, for people; "" for the child itself.
	path string
	// reader names the statement that reads a whole table without the index.
	reader string
}

// childNeed is the need of a definition's own statements.
func childNeed(reference *loosefk.Reference, proven map[uint32]bool) need {
	n := need{table: reference.Child.OID, columns: reference.Definition.Columns, list: true, indexed: reference.Indexed, proven: proven}
	n.reader = "every statement"
	for _, condition := range reference.Conditions {
		n.given = append(n.given, condition.Column)
	}
	return n
}

// below walks the real foreign keys from a table whose rows are deleted: Postgres looks for referring rows by
// each of them, and ON DELETE CASCADE deletes these in turn. It returns what that needs, the shortest ways
// first, and all tables that lose rows, with the partitioned tables that these belong to.
func (s *survey) below(child pgcatalog.Table) (needs []need, gone []uint32) {
	actions := map[pgcatalog.Action]string{
		pgcatalog.Cascade: "CASCADE", pgcatalog.SetNull: "SET NULL", pgcatalog.SetDefault: "SET DEFAULT",
		pgcatalog.Restrict: "RESTRICT", pgcatalog.NoAction: "NO ACTION",
	}
	type step struct {
		table uint32
		label string
		path  string
	}
	queue := []step{{table: child.OID, label: child.Label(), path: child.Label()}}
	walked := map[uint32]bool{}
	seen := map[string]bool{}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if walked[at.table] {
			continue // reached by a shorter way, or in a cycle
		}
		walked[at.table] = true
		for _, referred := range s.family(at.table) {
			gone = append(gone, referred)
			for _, key := range s.keys[referred] {
				label := ""
				if t := s.tables[key.Table]; t != nil { // Which tables are to be read is asked before.
					label = t.Label()
				}
				path := fmt.Sprintf("%s → %s (%s) ON DELETE %s", at.path, label, strings.Join(key.Columns, ", "), actions[key.OnDelete])
				if name := fmt.Sprintf("%d %q", key.Table, key.Columns); !seen[name] {
					seen[name] = true
					needs = append(needs, need{table: key.Table, columns: key.Columns, path: path, reader: "every deleted row of " + at.label})
				}
				if key.OnDelete == pgcatalog.Cascade {
					queue = append(queue, step{table: key.Table, label: label, path: path})
				}
			}
		}
	}
	return needs, gone
}

// family are the tables whose foreign keys concern a row of this one: itself and its partitions, and those
// that it is a partition of.
func (s *survey) family(oid uint32) []uint32 {
	family := s.tree(oid)
	for whole, found := s.whole[oid]; found; whole, found = s.whole[whole] {
		family = append(family, whole)
	}
	return family
}
