// Pki writes the keys and certificates listed as JSON on standard input:
//
//	pki DIRECTORY < requests.json
//
// A request whose certificate is already there is left alone, so a run that was
// cut short is completed by the next one.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is longer than any development cluster is kept.
const lifetime = 5 * 365 * 24 * time.Hour

// request asks for NAME.key and NAME.crt, signed by the authority CA, or for an
// authority of its own where CA is empty. Groups become the subject's organisations.
type request struct {
	Name, CA, CommonName string
	Groups, DNS          []string
	IPs                  []net.IP
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pki:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: pki DIRECTORY < requests.json")
	}
	var requests []request
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	for _, wanted := range requests {
		if _, err := os.Stat(filepath.Join(os.Args[1], wanted.Name+".crt")); err == nil {
			continue
		}
		if err := issue(os.Args[1], wanted); err != nil {
			return fmt.Errorf("%s: %w", wanted.Name, err)
		}
	}
	return nil
}

func issue(directory string, wanted request) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificate(wanted)
	if err != nil {
		return err
	}
	parent, signer := template, crypto.Signer(key)
	if wanted.CA != "" {
		if parent, signer, err = authority(directory, wanted.CA); err != nil {
			return err
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// The certificate comes last: its presence says that the key is whole.
	if err := writePEM(filepath.Join(directory, wanted.Name+".key"), "PRIVATE KEY", private, 0o600); err != nil {
		return err
	}
	return writePEM(filepath.Join(directory, wanted.Name+".crt"), "CERTIFICATE", signed, 0o644)
}

func certificate(wanted request) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	isAuthority := wanted.CA == ""
	usage := x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	if isAuthority {
		usage |= x509.KeyUsageCertSign
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: wanted.CommonName, Organization: wanted.Groups},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              usage,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  isAuthority,
		DNSNames:              wanted.DNS,
		IPAddresses:           wanted.IPs,
	}, nil
}

func authority(directory, name string) (*x509.Certificate, crypto.Signer, error) {
	signed, err := readPEM(filepath.Join(directory, name+".crt"))
	if err != nil {
		return nil, nil, err
	}
	parent, err := x509.ParseCertificate(signed)
	if err != nil {
		return nil, nil, err
	}
	private, err := readPEM(filepath.Join(directory, name+".key"))
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("authority %s has a key that cannot sign", name)
	}
	return parent, signer, nil
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	return block.Bytes, nil
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	partial := path + ".partial"
	if err := os.WriteFile(partial, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return err
	}
	return os.Rename(partial, path)
}
