package dryrun

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// create is the statement that an operator has to run for a missing index, without a lock that holds writers up. CREATE INDEX
// CONCURRENTLY refuses a partitioned table: there an index on the table alone is filled with one per partition.
// Where some partitions have an index of their own, only the others get one.
func (s *survey) create(n need, root *surveyTable, lacking []*surveyTable, leaves int) string {
	if root.kind != "p" {
		return fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s);", s.name(root.Schema, root.Name), s.list(n.columns))
	}
	r := recipe{survey: s, need: n, names: map[string]bool{}}
	if len(lacking) < leaves {
		for _, leaf := range lacking {
			r.addf("CREATE INDEX CONCURRENTLY ON %s (%s);", s.name(leaf.Schema, leaf.Name), s.list(n.columns))
		}
	} else {
		r.tree(root)
	}
	return strings.Join(r.lines, "\n")
}

// recipe collects the statements for one partitioned table.
type recipe struct {
	survey *survey
	need   need
	lines  []string
	// names are the index names that were given, by schema and name.
	names map[string]bool
}

func (r *recipe) addf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// tree makes the index of one table of the tree and returns its name. That of a partitioned table becomes valid
// with the last of its partitions' indexes.
func (r *recipe) tree(t *surveyTable) string {
	name := r.indexName(t)
	index := r.survey.name(t.Schema, name)
	if t.kind != "p" {
		r.addf("CREATE INDEX CONCURRENTLY %s ON %s (%s);", r.survey.quote(name), r.survey.name(t.Schema, t.Name), r.survey.list(r.need.columns))
		return index
	}
	r.addf("CREATE INDEX %s ON ONLY %s (%s);", r.survey.quote(name), r.survey.name(t.Schema, t.Name), r.survey.list(r.need.columns))
	for _, oid := range r.survey.parts[t.OID] {
		if part := r.survey.tables[oid]; part != nil {
			r.addf("ALTER INDEX %s ATTACH PARTITION %s;", index, r.tree(part))
		}
	}
	return index
}

// indexName makes a name as Postgres would, which nothing has yet.
func (r *recipe) indexName(t *surveyTable) string {
	base := t.Name + "_" + strings.Join(r.need.columns, "_")
	for n := 0; ; n++ {
		end := "_idx"
		if n > 0 {
			end = fmt.Sprintf("_idx%d", n)
		}
		name := truncated(base, maxNameBytes-len(end)) + end
		key := t.Schema + "\x00" + name
		if !r.names[key] && !r.survey.taken[t.Schema][name] {
			r.names[key] = true
			return name
		}
	}
}

// maxNameBytes is the length that Postgres cuts names to.
const maxNameBytes = 63

// truncated cuts a text to at most size bytes, between characters.
func truncated(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}

// quote is quote_ident of Postgres: quotes only where they are needed, for lines that people read.
func (s *survey) quote(name string) string {
	plain := name != "" && !s.reserved[name]
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z'
		plain = plain && (letter || i > 0 && c >= '0' && c <= '9')
	}
	if plain {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

func (s *survey) name(schema, name string) string { return s.quote(schema) + "." + s.quote(name) }

func (s *survey) list(columns []string) string {
	quoted := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = s.quote(column)
	}
	return strings.Join(quoted, ", ")
}
