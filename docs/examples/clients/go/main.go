// The walkthrough of docs/getting-started.md with a client from oapi-codegen. It prints what it sees.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"example.com/walkthrough/taproot"
)

var (
	api  = os.Getenv("API")
	root = os.Getenv("ROOT")
	ctx  = context.Background()
)

func clientFor(token string) *taproot.ClientWithResponses {
	signIn := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	client, err := taproot.NewClientWithResponses(api, taproot.WithRequestEditorFn(signIn))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// answered is what each operation returns.
type answered interface {
	StatusCode() int
	GetJSON4XX() *taproot.Error
}

// must returns what an operation answered. It ends the program with the error that it answered instead.
func must[Answer answered](answer Answer, err error) Answer {
	if err != nil {
		log.Fatal(err)
	}
	if refused := answer.GetJSON4XX(); refused != nil {
		log.Fatal(refused.Message)
	}
	return answer
}

// refusal returns the status and code of an operation that is refused, and the reason of its error.
func refusal[Answer answered](answer Answer, err error) string {
	if err != nil {
		log.Fatal(err)
	}
	refused := answer.GetJSON4XX()
	return fmt.Sprintf("%d %d %s", answer.StatusCode(), refused.Code, *refused.Details[0].Reason)
}

func names[Record any](records []Record, nameOf func(Record) *string) string {
	shown := make([]string, len(records))
	for at, record := range records {
		shown[at] = *nameOf(record)
	}
	return strings.Join(shown, " ")
}

func nameOfGroup(group taproot.IamV2Group) *string          { return group.Name }
func nameOfIdentity(identity taproot.IamV2Identity) *string { return identity.Name }

func main() {
	owner := clientFor(os.Getenv("TOKEN"))
	groups := must(owner.ListGroupsWithResponse(ctx, &taproot.ListGroupsParams{Name: &root})).JSON200
	fmt.Println("groups:", *groups.TotalCount)
	demo := *(*groups.Groups)[0].Uid

	web, ci := groupAndIdentity(owner, demo)
	job := signInAs(ci, web, demo)
	changeRecord(owner, web)
	release := bindRole(owner, demo, web, ci)
	lists(owner, web)

	fmt.Println("full:", refusal(owner.DeleteGroupWithResponse(ctx, web, nil)))
	for _, uid := range []string{ci, release} {
		must(owner.DeleteIdentityWithResponse(ctx, uid, nil))
	}
	fmt.Println("deleted:", must(owner.DeleteGroupWithResponse(ctx, web, nil)).StatusCode())
	fmt.Println("signed out:", refusal(job.ListGroupsWithResponse(ctx, nil)))

	tagHistory(owner, demo)

	// A root group, which an operator creates.
	ann := must(clientFor(os.Getenv("ANN_TOKEN")).ExchangeTokenWithResponse(ctx, nil)).JSON200
	acme := must(clientFor(*ann.Token).CreateRootGroupWithResponse(ctx, nil, taproot.IamV2GroupInput{Name: root + "-acme"})).JSON200
	fmt.Println("organisation:", *acme.Name, *acme.Status)
}

func newIdentity(owner *taproot.ClientWithResponses, group, name string, claims taproot.IamV2IdentityClaimMatchInput) string {
	claims.Issuer = new(api + "/dev/issuer")
	return *must(owner.CreateIdentityWithResponse(ctx, group, nil, taproot.IamV2IdentityInput{Name: name, ClaimMatch: &claims})).JSON200.Uid
}

func groupAndIdentity(owner *taproot.ClientWithResponses, demo string) (web, ci string) {
	created := must(owner.CreateGroupWithResponse(ctx, demo, nil, taproot.IamV2GroupInput{Name: "web", Description: new("The web team")})).JSON200
	fmt.Printf("created: %s, %s\n", *created.Name, *created.Description)
	web = *created.Uid
	ci = newIdentity(owner, web, "ci", taproot.IamV2IdentityClaimMatchInput{Subject: new("ci")})
	roles := must(owner.ListRolesWithResponse(ctx, &taproot.ListRolesParams{Name: new("viewer")})).JSON200
	binding := must(owner.CreateRoleBindingWithResponse(ctx, web, nil, taproot.IamV2RoleBindingInput{IdentityUid: &ci, RoleUid: (*roles.Roles)[0].Uid})).JSON200
	fmt.Println("bound:", *binding.Identity.Name, *binding.Group.Name, *binding.Role.Name)

	access := must(owner.ListAccessWithResponse(ctx, &taproot.ListAccessParams{Resource: web, Capability: new("CAP_IAM_GROUPS_LIST")})).JSON200
	fmt.Println("access:", *access.TotalCount)
	return web, ci
}

func signInAs(ci, web, demo string) *taproot.ClientWithResponses {
	exchanged := must(clientFor(os.Getenv("CI_TOKEN")).ExchangeTokenWithResponse(ctx, &taproot.ExchangeTokenParams{Identity: &ci})).JSON200
	job := clientFor(*exchanged.Token)
	fmt.Println("seen:", names(*must(job.ListGroupsWithResponse(ctx, nil)).JSON200.Groups, nameOfGroup))
	caller := must(job.ValidateTokenWithResponse(ctx)).JSON200
	fmt.Println("caller:", *caller.Subject == ci, names(*caller.Capabilities, func(held taproot.AuthV1WhoAmIHeld) *string { return held.Role.Name }))
	fmt.Println("denied:", refusal(job.DeleteGroupWithResponse(ctx, web, nil)))
	fmt.Println("hidden:", refusal(job.GetGroupWithResponse(ctx, demo)))
	return job
}

func changeRecord(owner *taproot.ClientWithResponses, web string) {
	patch := taproot.IamV2GroupPatch{Name: new("ignored"), Description: new("Everything on the web")}
	changed := must(owner.UpdateGroupWithResponse(ctx, web, &taproot.UpdateGroupParams{UpdateMask: new("description")}, patch)).JSON200
	fmt.Printf("changed: %s, %s\n", *changed.Name, *changed.Description)
	unchanged := &taproot.UpdateGroupParams{IfMatch: new(`"` + *changed.Etag + `"`)}
	first := must(owner.UpdateGroupWithResponse(ctx, web, unchanged, taproot.IamV2GroupPatch{Description: new("First")})).JSON200
	fmt.Println("first:", *first.Description)
	fmt.Println("second:", refusal(owner.UpdateGroupWithResponse(ctx, web, unchanged, taproot.IamV2GroupPatch{Description: new("Second")})))
}

func bindRole(owner *taproot.ClientWithResponses, demo, web, ci string) (release string) {
	role := must(owner.CreateRoleWithResponse(ctx, demo, nil, taproot.IamV2RoleInput{
		Name: "deployer",
		Capabilities: &[]taproot.CommonV2CapabilityInput{
			taproot.CommonV2CapabilityInputCAPIAMGROUPSLIST, taproot.CommonV2CapabilityInputCAPREPOLIST, taproot.CommonV2CapabilityInputCAPTAGCREATE,
		},
	})).JSON200
	fmt.Println("role:", names(*role.Capabilities, func(capability taproot.CommonV2Capability) *string { return new(string(capability)) }))
	release = newIdentity(owner, web, "release", taproot.IamV2IdentityClaimMatchInput{SubjectPattern: new("release-.*")})
	requests := []taproot.IamV2CreateRoleBindingRequestInput{
		{RoleBinding: taproot.IamV2RoleBindingInput{IdentityUid: &ci}},
		{RoleBinding: taproot.IamV2RoleBindingInput{IdentityUid: &release}},
	}
	body := taproot.BatchCreateRoleBindingsJSONRequestBody{Parent: &web, RoleUid: role.Uid, Requests: requests}
	bindings := must(owner.BatchCreateRoleBindingsWithResponse(ctx, nil, body)).JSON200
	fmt.Println("bindings:", names(*bindings.RoleBindings, func(binding taproot.IamV2RoleBinding) *string { return binding.Identity.Name }))
	return release
}

func lists(owner *taproot.ClientWithResponses, web string) {
	order := taproot.ListIdentitiesParams{UidpDescendantsOf: &web, OrderBy: new("created_at desc"), PageSize: new(int32(1))}
	page := must(owner.ListIdentitiesWithResponse(ctx, &order)).JSON200
	order.PageToken = page.NextPageToken
	next := must(owner.ListIdentitiesWithResponse(ctx, &order)).JSON200
	fmt.Println("pages:", names(*page.Identities, nameOfIdentity), names(*next.Identities, nameOfIdentity), "of", *page.TotalCount)
}

func tagHistory(owner *taproot.ClientWithResponses, demo string) {
	repos := must(owner.ListReposWithResponse(ctx, &taproot.ListReposParams{UidpDescendantsOf: &demo, Name: new("hello")})).JSON200
	repo := *(*repos.Repos)[0].Uid
	tags := must(owner.ListTagsWithResponse(ctx, &taproot.ListTagsParams{UidpChildrenOf: &repo})).JSON200
	fmt.Println("tags:", names(*tags.Tags, func(tag taproot.RegistryV2Tag) *string { return tag.Name }))
	history := *must(owner.ListTagHistoryWithResponse(ctx, repo, &taproot.ListTagHistoryParams{Tag: "latest"})).JSON200.History
	fmt.Println("history:", len(history))
	body := taproot.RestoreTagJSONRequestBody{Tag: "latest", Digest: history[0].Digest}
	restored := must(owner.RestoreTagWithResponse(ctx, repo, nil, body)).JSON200
	fmt.Println("restored:", *restored.Name, *restored.Digest == *history[0].Digest)
}
