package schema

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/yamlfile"
)

// entry is one definition in the file.
type entry struct {
	Table        string             `yaml:"table"`
	Column       any                `yaml:"column,flow"`
	ParentColumn any                `yaml:"parent_column,flow,omitempty"`
	OnDelete     definitions.Action `yaml:"on_delete"`
	Constraint   constraint         `yaml:"constraint,flow"`
}

// constraint is a definitions.Constraint that is encoded without default values.
type constraint struct {
	Name       string                `yaml:"name"`
	Deferrable bool                  `yaml:"deferrable,omitempty"`
	Initially  definitions.Initially `yaml:"initially,omitempty"`
	Match      definitions.Match     `yaml:"match,omitempty"`
	OnUpdate   definitions.OnUpdate  `yaml:"on_update,omitempty"`
}

// WriteDefinitions returns a definition file that replaces the foreign keys. Each
// definition has the name and the options of its constraint.
func WriteDefinitions(keys []*ForeignKey) ([]byte, error) {
	text, _, err := write(keys)
	return text, err
}

// write returns a definition file. entries maps the key of each definition, such as
// issues[0], to its foreign key.
func write(keys []*ForeignKey) (text []byte, entries map[string]*ForeignKey, err error) {
	document, lists := &yaml.Node{Kind: yaml.MappingNode}, map[string]*yaml.Node{}
	entries = map[string]*ForeignKey{}
	for _, k := range keys {
		list := lists[k.Child]
		if list == nil {
			var name yaml.Node
			if err := name.Encode(k.Child); err != nil {
				return nil, nil, err
			}
			list = &yaml.Node{Kind: yaml.SequenceNode}
			lists[k.Child] = list
			document.Content = append(document.Content, &name, list)
		}
		e := entry{
			Table: k.Parent, Column: singleOrList(k.Columns), OnDelete: k.OnDelete, Constraint: constraint(k.options),
		}
		if !k.primary {
			e.ParentColumn = singleOrList(k.ParentColumns)
		}
		var item yaml.Node
		if err := item.Encode(e); err != nil {
			return nil, nil, err
		}
		entries[fmt.Sprintf("%s[%d]", yamlfile.Join("", k.Child), len(list.Content))] = k
		list.Content = append(list.Content, &item)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(document), encoder.Close())
	return out.Bytes(), entries, err
}

// blank reports whether a file is empty or contains only comments.
func blank(file []byte) bool {
	var node yaml.Node
	return yaml.Unmarshal(file, &node) == nil && node.Kind == 0
}

// blankLine replaces blank lines during a merge, because the YAML encoder keeps comments
// but not blank lines.
const blankLine = "# (blank line)\n"

// merge returns file with the definitions of more. It keeps the comments and the blank
// lines of file.
func merge(file, more []byte) ([]byte, error) {
	var into, from yaml.Node
	marked := regexp.MustCompile(`(?m)^[ \t]*\n`).ReplaceAll(file, []byte(blankLine))
	if err := errors.Join(yaml.Unmarshal(marked, &into), yaml.Unmarshal(more, &from)); err != nil {
		return nil, err
	}
	if blank(file) {
		return slices.Concat(bytes.TrimSuffix(file, []byte("\n")), []byte("\n"), more), nil
	}
	tables := into.Content[0]
	for i := 0; i < len(from.Content[0].Content); i += 2 {
		name, list := from.Content[0].Content[i], from.Content[0].Content[i+1]
		found := slices.IndexFunc(tables.Content, func(n *yaml.Node) bool { return n.Value == name.Value })
		if found < 0 {
			tables.Content = append(tables.Content, name, list)
			continue
		}
		tables.Content[found+1].Content = append(tables.Content[found+1].Content, list.Content...)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(&into), encoder.Close())
	return regexp.MustCompile(`(?m)^[ \t]*`+regexp.QuoteMeta(blankLine)).ReplaceAll(out.Bytes(), []byte("\n")), err
}

// singleOrList returns the only element of a list, or the list if it has several.
func singleOrList(names []string) any {
	if len(names) == 1 {
		return names[0]
	}
	return names
}

// WayBack returns the statements that replace a definition by a foreign key. The
// statements in add create constraints that Postgres checks for new rows. The statements
// in validate check the existing rows, and fail if a child has no parent. If no foreign
// key can replace the definition, WayBack returns the reason.
//
// taken holds the used names of constraints. WayBack adds the new names to it.
func WayBack(parent *loosefk.Parent, reference *loosefk.Reference,
	taken map[string]bool,
) (add, validate []string, reason string) {
	actions := map[dml.Action]string{dml.Remove: "CASCADE", dml.Nullify: "SET NULL"}
	switch {
	case actions[reference.Action] == "":
		return nil, nil, "foreign keys cannot set another column"
	case reference.Remote:
		return nil, nil, "foreign keys cannot cross databases"
	case len(reference.Definition.Conditions) > 0:
		return nil, nil, "foreign keys cannot have conditions"
	}
	options := reference.Definition.Constraint
	statement := func(table pgcatalog.Table, how string) (name, sql string) {
		free, ending := table.Name+"_"+strings.Join(reference.Columns, "_"), "_fkey"
		if options.Name != "" {
			free, ending = options.Name, ""
		}
		for n := 1; taken[table.SQL()+shortenName(free, ending)]; n++ {
			// Postgres also appends a number if the name of a constraint is used.
			ending = strings.TrimRight(ending, "0123456789") + strconv.Itoa(n)
		}
		name = shortenName(free, ending)
		taken[table.SQL()+name] = true
		name = pgcatalog.Quote(name)
		return name, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s FOREIGN KEY (%s) REFERENCES %s (%s)%s%s;",
			table.SQL(), name, pgcatalog.QuoteAll(reference.Columns), parent.SQL(),
			pgcatalog.QuoteAll(parent.KeyColumns),
			options.SQL(actions[reference.Action]), how)
	}
	for _, leaf := range reference.Leaves {
		name, sql := statement(leaf, " NOT VALID")
		add = append(add, sql)
		validate = append(validate, fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s;", leaf.SQL(), name))
	}
	if reference.Partitioned() {
		// Postgres attaches the valid foreign keys of the partitions to the foreign key
		// of the partitioned table without reading the rows again.
		_, sql := statement(reference.Child, "")
		validate = append(validate, sql)
	}
	return add, validate, ""
}

// shortenName shortens name so that name and ending have at most 63 bytes, the limit of
// Postgres.
func shortenName(name, ending string) string {
	const most = 63
	if len(name)+len(ending) > most {
		name = strings.ToValidUTF8(name[:most-len(ending)], "")
	}
	return name + ending
}
