package main

import "fmt"

// claim is an event of a unique name: a record takes it, lets go of it, or finds it taken.
type claim struct {
	uid  string
	op   *operation
	ret  int64
	sure bool
	kind claimKind
}

type claimKind int

const (
	acquires claimKind = iota
	releases
	findsTaken
)

func (c *claim) String() string {
	what := [...]string{"acquire", "release", "taken"}[c.kind]
	return fmt.Sprintf("%s[client %d, %d..%d] %s sure=%t", what, c.op.Client, c.op.Call, c.ret, c.uid, c.sure)
}

// step is the name's specification: the state is its holder's uid, empty where it is free.
func (c *claim) step(state any) (bool, any) {
	holder := state.(string)
	switch c.kind {
	case acquires:
		if holder == "" || holder == c.uid {
			return true, c.uid
		}
		return !c.sure, holder
	case releases:
		if holder == c.uid {
			return true, ""
		}
		return true, holder
	}
	return holder != "" && holder != c.uid, holder
}

// isNeeded tells whether an unsure event can explain anything: a taken name, or that another record could have it afterwards.
func (c *claim) isNeeded(all []*claim) bool {
	if c.sure {
		return true
	}
	for _, other := range all {
		if c.kind == acquires && other.kind == findsTaken {
			return true
		}
		if c.kind == releases && other.kind == acquires && other.uid != c.uid && other.ret >= c.op.Call {
			return true
		}
	}
	return false
}

func namePartition(of string, claims []*claim) partition {
	p := partition{name: "name " + of, initial: ""}
	for _, c := range claims {
		if c.isNeeded(claims) {
			p.add(c.op.Client, c.op.Call, c.ret, c.step, c.String())
		}
	}
	return p
}
