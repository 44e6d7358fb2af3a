// Receives events of one group: ISSUER=https://platform.example.com GROUP=<uid> go run .
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/coreos/go-oidc/v3/oidc"
)

const maxBytes = 4 << 20

// receiver has the keys of the issuer and the subject of the tokens for one group.
type receiver struct {
	tokens  *oidc.IDTokenVerifier
	subject string
}

// handle does what an event asks for. An event may come twice: remember the ids that were handled.
func handle(event *cloudevents.Event) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"id": event.ID(), "type": event.Type(), "subject": event.Subject(), "group": event.Extensions()["group"], "data": json.RawMessage(event.Data()),
	})
}

// verify returns an error unless Taproot sent these bytes, to this group, within the last hour.
func (r receiver) verify(ctx context.Context, token string, body []byte) error {
	verified, err := r.tokens.Verify(ctx, token)
	if err != nil {
		return err
	}
	var claims struct{ Webhook struct{ Digest string } }
	if err := verified.Claims(&claims); err != nil {
		return err
	}
	if verified.Subject != r.subject {
		return errors.New("the token is for another group")
	}
	if claims.Webhook.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(body)) {
		return errors.New("the token is for another body")
	}
	return nil
}

// receive returns the status of the answer. Taproot sends an event again unless it is 2xx.
func (r receiver) receive(request *http.Request, body []byte) (int, error) {
	request.Body = io.NopCloser(bytes.NewReader(body))
	event, err := cloudevents.NewEventFromHTTPRequest(request)
	if err == nil {
		err = event.Validate()
	}
	if err != nil {
		return http.StatusBadRequest, err
	}
	token, isBearer := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return http.StatusUnauthorized, errors.New("no token")
	}
	if err := r.verify(request.Context(), token, body); err != nil {
		return http.StatusForbidden, err
	}
	return http.StatusInternalServerError, handle(event)
}

func (r receiver) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, maxBytes))
	if err != nil {
		http.Error(response, err.Error(), http.StatusRequestEntityTooLarge)
	} else if status, err := r.receive(request, body); err != nil {
		http.Error(response, err.Error(), status)
	}
}

func main() {
	// The base URL of Taproot, and the group of the subscription. The issuer must call itself so.
	provider, err := oidc.NewProvider(context.Background(), os.Getenv("ISSUER"))
	if err != nil {
		log.Fatal(err)
	}
	tokens := provider.Verifier(&oidc.Config{ClientID: "customer", SupportedSigningAlgs: []string{oidc.ES256}})
	// Sinks are https: let a proxy terminate TLS.
	listener, err := net.Listen("tcp", ":"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on port %d", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, receiver{tokens, "webhook:" + os.Getenv("GROUP")}))
}
