package definitions

import (
	"strings"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// Action says what happens to the children of a deleted parent.
type Action string

// The actions, named as in the definitions file.
const (
	Delete       Action = "async_delete"
	Nullify      Action = "async_nullify"
	UpdateColumn Action = "update_column_to"
)

// ArtifactsCleaner is the cleaner class that is built in: the generic delete plus one event with the keys of
// the rows whose files somebody else has to remove.
const ArtifactsCleaner = "Ci::JobArtifacts::LooseForeignKeyCleanerService"

// Name is a table name as the file has it. An empty Schema means the schema configured for the database.
type Name struct {
	Schema string
	Table  string
}

// String renders schema.table, or the table alone where the file named no schema.
func (n Name) String() string {
	if n.Schema == "" {
		return n.Table
	}
	return n.Schema + "." + n.Table
}

// Reuse says what becomes of children whose parent's key was deleted and lives again.
type Reuse string

// The two answers. A worker cannot tell the children of the old row from those of the new one, so it is all or none.
const (
	ReuseKeep   Reuse = "keep"
	ReuseDelete Reuse = "delete"
)

// Condition restricts a definition to children whose column has the value, for polymorphic references.
type Condition struct {
	Column string
	// Value is the text form, cast to the column's type in SQL.
	Value string
}

// Definition is one entry: children in Child whose Columns name a deleted row of Parent.
type Definition struct {
	// Position is where the entry begins; Key is its path, such as "issues[2]".
	Position problem.Position
	Key      string

	Child Name
	// Columns are the child's columns with the parent's key; a child with NULL in one of them refers to no row.
	Columns []string
	Parent  Name
	// ParentColumns are the referenced columns, one for each of Columns; none means the parent's primary key.
	ParentColumns []string
	OnDelete      Action

	// TargetColumn and TargetValue belong to UpdateColumn alone. TargetValue is the text form.
	TargetColumn string
	TargetValue  string
	Conditions   []Condition

	// OnReuse decides about the children of a key that was deleted and inserted anew; empty means keep.
	OnReuse Reuse

	// DeleteLimit bounds the rows of one DELETE statement; 0 means the pace's own limit. It has no
	// effect on updates, as in GitLab.
	DeleteLimit int
	// WorkerClass is kept as a label; one lane per database serves all definitions.
	WorkerClass string
	// CleanerClass is empty or ArtifactsCleaner.
	CleanerClass string
	// Database names the database that the child lives in; empty means the parent's.
	Database string

	places yamlfile.Places
}

// At is where the value of a key of the entry stands, such as column or column[1], or where the entry begins if
// it has no such key.
func (d Definition) At(key string) problem.Position {
	return d.places.Of(d.Key + "." + key).Position
}

// ColumnList is the child's columns for people.
func (d Definition) ColumnList() string { return strings.Join(d.Columns, ", ") }
