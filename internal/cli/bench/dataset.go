package bench

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// The constants are the names of the data sets of Drain, described at their full size.
const (
	// Wide has 10,000 parents with 100 children each.
	Wide = "wide"
	// Fanout has 2,000 parents with 50 children in each of 20 tables.
	Fanout = "fanout"
	// Skew has one parent with a million children, and 1,000 parents with 10 children
	// each.
	Skew = "skew"
	// Nullify has the rows of Wide and three more indexes. The reference of a child is
	// set to NULL.
	Nullify = "nullify"
	// Slow has 20,000 parents with one child each. A trigger makes the deletion of each
	// child take 20 ms.
	Slow = "slow"
	// Retention has a million expired rows and 100,000 rows that are kept. No parent is
	// deleted.
	Retention = "retention"
)

// DrainSets returns the names of all data sets.
func DrainSets() []string { return []string{Wide, Fanout, Skew, Nullify, Slow, Retention} }

// dataSet describes parents with the IDs 1 to Targets+Spared, and children in one or more
// tables. The first parents, the targets, are deleted. The other parents, the spared
// parents, and their children must not change. Adjacent children belong to different
// parents, which is the worst case for locality.
type dataSet struct {
	Name            string
	Targets, Spared int64
	Tables          []string
	// Rows is the number of rows of each child table. ParentOf is an SQL expression for
	// the parent ID of row n.
	Rows     int64
	ParentOf string
}

// newDataSet returns the data set with the given name. scale is a fraction of the full
// size.
func newDataSet(name string, scale float64) (dataSet, error) {
	sized := func(full int64) int64 { return max(10, int64(float64(full)*scale)) }
	s := dataSet{Name: name, Tables: []string{"children"}}
	perParent := int64(100)
	switch name {
	case Wide, Nullify:
		s.Targets = sized(10_000)
	case Fanout:
		s.Targets, s.Tables, perParent = sized(2000), nil, 50
		for i := range 20 {
			s.Tables = append(s.Tables, fmt.Sprintf("children_%02d", i+1))
		}
	case Skew:
		small, big := sized(1000), sized(1_000_000)
		s.Targets, s.Spared = small+1, small/10
		few := (small + s.Spared) * 10
		s.Rows = big + few
		step := s.Rows / few
		s.ParentOf = fmt.Sprintf("CASE WHEN n %% %[1]d = 0 AND n / %[1]d <= %[2]d THEN 2 + (n / %[1]d - 1) %% %[3]d ELSE 1 END", step, few, small+s.Spared)
		return s, nil
	case Retention:
		s.Spared = sized(100_000)
		s.Rows, s.ParentOf = 11*s.Spared, "CASE WHEN n % 11 = 0 THEN n / 11 ELSE 0 END"
		return s, nil
	case Slow:
		s.Targets, perParent = sized(20_000), 1
	default:
		return dataSet{}, fmt.Errorf("no data set %q", name)
	}
	s.Spared = s.Targets / 10
	s.Rows = (s.Targets + s.Spared) * perParent
	s.ParentOf = fmt.Sprintf("(n - 1) %% %d + 1", s.Targets+s.Spared)
	return s, nil
}

// Nullifies reports whether the references of children are set to NULL instead of
// deleting the children.
func (s dataSet) Nullifies() bool { return s.Name == Nullify }

// All returns the number of parents.
func (s dataSet) All() int64 { return s.Targets + s.Spared }

// definitions returns the definition file of the data set.
func (s dataSet) definitions() string {
	action := "async_delete"
	if s.Nullifies() {
		action = "async_nullify"
	}
	var out strings.Builder
	for _, table := range s.Tables {
		fmt.Fprintf(&out, "%s: [{table: parents, column: parent_id, on_delete: %s}]\n", table, action)
	}
	return out.String()
}

// environ returns the environment variables that configure the data set.
func (s dataSet) environ() []string {
	if s.Name != Retention {
		return nil
	}
	return []string{
		"SEXTON_RETENTION__ENABLED=true",
		"SEXTON_RETENTION__RULES=[{table: children, column: at, keep: 30d}]",
	}
}

// fillStatements returns the statements that insert the rows.
func (s dataSet) fillStatements() []string {
	return slices.Collect(strings.SplitSeq(strings.TrimSpace(s.render("children_fill.sql")), ";\n"))
}

//go:embed data/children.sql data/children_fill.sql
var data embed.FS

// render executes a template in the folder data.
func (s dataSet) render(name string) string {
	var out strings.Builder
	// The templates are embedded, and a test renders each of them, so Must cannot fail.
	parsed := template.Must(template.ParseFS(data, "data/"+name))
	template.Must(parsed, parsed.Execute(&out, s))
	return out.String()
}
