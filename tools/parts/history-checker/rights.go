package main

import (
	"fmt"
	"slices"
)

// rightsPartitions returns checks for identities whose rights all come from role bindings in one group. They must be admitted exactly
// while they have one there. The state is the set of the identity's role bindings; each use shows whether it is empty.
func (w *world) rightsPartitions() []partition {
	var all []partition
	in := w.byPlace()
	for _, key := range sortedKeys(w.uses) {
		uses := w.uses[key]
		bindings := []*record{}
		for _, r := range in[place(binding, uses[0].Parent)] {
			if r.identity == uses[0].Identity {
				bindings = append(bindings, r)
			}
		}
		all = append(all, rightsPartition(key, bindings, uses, w.unseen[key]))
	}
	return all
}

// rightsPartition leaves out uses that may be explained by a role binding which no response has shown.
func rightsPartition(of string, records []*record, uses []*operation, unseen []*operation) partition {
	p := partition{name: "rights " + of}
	empty := set(make([]byte, (len(records)+7)/8))
	p.initial = empty
	for at, r := range records {
		gone := r.surelyGone()
		for _, e := range r.events {
			// Adds nothing to the acknowledged removal. Many concurrent events of this kind would have very many orders.
			if e.verb == isAbsent && e.call > gone {
				continue
			}
			step := memberStep(e, at, empty)
			if e.verb == vanishes {
				step = func(state any) (bool, any) { return true, state.(set).without(empty.with(at)) }
			}
			// A removal that is idle for the record itself is kept, since it may explain the result of a use.
			if step != nil {
				p.add(e.client, e.call, e.ret, step, join(r.uid, e.String()))
			}
		}
	}
	for _, o := range uses {
		isLetIn := o.Outcome == "ok"
		if isLetIn && slices.ContainsFunc(unseen, func(creation *operation) bool { return creation.Call <= o.returned() }) {
			continue
		}
		step := func(state any) (bool, any) { return (state.(set) != empty) == isLetIn, state }
		p.add(o.Client, o.Call, o.returned(), step, fmt.Sprintf("use[client %d, %d..%d] %s", o.Client, o.Call, o.returned(), o.Outcome))
	}
	return p
}
