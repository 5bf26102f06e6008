// A Google Cloud Storage for tests: fake-gcs-server's library, and the uploads of the XML API that it lacks.
//
// The object_store library, which obstore wraps, lists and reads by the XML API, which fake-gcs-server answers.
// It also writes by it: a PUT with x-goog-if-generation-match, and multipart uploads. Both become an upload of
// the JSON API here, whose precondition fake-gcs-server checks under a lock.
//
// It shows our own code path, not Google's behaviour.
package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const host = "storage.googleapis.com"

type gateway struct {
	storage http.Handler
	lock    sync.Mutex
	uploads map[string]map[string][]byte // by upload id, then by part number
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "host and port to listen on")
	bucket := flag.String("bucket", "test-bucket", "a bucket to make")
	flag.Parse()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: host})
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: *bucket})
	log.Fatal(http.ListenAndServe(*address, &gateway{storage: server.HTTPHandler(), uploads: map[string]map[string][]byte{}}))
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Host = host // whatever name or proxy the client came by
	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	upload := query.Get("uploadId")
	switch {
	case object == "" || r.Method == http.MethodGet || r.Method == http.MethodHead:
		g.storage.ServeHTTP(w, r)
	case r.Method == http.MethodPut && upload == "":
		g.put(w, bucket, object, r.Header.Get("x-goog-if-generation-match"), read(r))
	case r.Method == http.MethodPost && query.Has("uploads"):
		g.begin(w)
	case r.Method == http.MethodPut:
		g.keepPart(w, upload, query.Get("partNumber"), read(r))
	case r.Method == http.MethodPost && upload != "":
		g.complete(w, bucket, object, upload, read(r))
	case r.Method == http.MethodDelete && upload != "":
		g.forget(upload)
		w.WriteHeader(http.StatusNoContent)
	default:
		g.storage.ServeHTTP(w, r)
	}
}

func read(r *http.Request) []byte {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has gone: an upload that was cut off is never stored
	}
	return body
}

func (g *gateway) store(bucket, object, generation string, body []byte) *httptest.ResponseRecorder {
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	target := fmt.Sprintf("/upload/storage/v1/b/%s/o?%s", url.PathEscape(bucket), query.Encode())
	reply := httptest.NewRecorder()
	g.storage.ServeHTTP(reply, httptest.NewRequest(http.MethodPost, target, bytes.NewReader(body)))
	return reply
}

func (g *gateway) put(w http.ResponseWriter, bucket, object, generation string, body []byte) {
	reply := g.store(bucket, object, generation, body)
	var stored struct{ Etag, Generation string }
	if reply.Code == http.StatusOK && json.Unmarshal(reply.Body.Bytes(), &stored) == nil {
		w.Header().Set("ETag", stored.Etag)
		w.Header().Set("x-goog-generation", stored.Generation)
	}
	w.WriteHeader(reply.Code)
}

func (g *gateway) begin(w http.ResponseWriter) {
	g.lock.Lock()
	defer g.lock.Unlock()
	id := fmt.Sprintf("upload-%d", len(g.uploads)+1)
	g.uploads[id] = map[string][]byte{}
	fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
}

func (g *gateway) keepPart(w http.ResponseWriter, upload, number string, body []byte) {
	g.lock.Lock()
	defer g.lock.Unlock()
	parts, known := g.uploads[upload]
	if !known || parts == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	parts[number] = body
	w.Header().Set("ETag", fmt.Sprintf("%q", number))
}

func (g *gateway) complete(w http.ResponseWriter, bucket, object, upload string, body []byte) {
	var wanted struct {
		Part []struct{ PartNumber string }
	}
	parts := g.forget(upload)
	if parts == nil || xml.Unmarshal(body, &wanted) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	var whole []byte
	for _, part := range wanted.Part {
		whole = append(whole, parts[part.PartNumber]...)
	}
	reply := g.store(bucket, object, "", whole)
	var stored struct{ Etag string }
	if reply.Code != http.StatusOK || json.Unmarshal(reply.Body.Bytes(), &stored) != nil {
		w.WriteHeader(reply.Code)
		return
	}
	fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>")
	xml.EscapeText(w, []byte(stored.Etag))
	fmt.Fprint(w, "</ETag></CompleteMultipartUploadResult>")
}

// forget keeps the id, so that none is given twice.
func (g *gateway) forget(upload string) map[string][]byte {
	g.lock.Lock()
	defer g.lock.Unlock()
	parts := g.uploads[upload]
	if _, known := g.uploads[upload]; known {
		g.uploads[upload] = nil
	}
	return parts
}
