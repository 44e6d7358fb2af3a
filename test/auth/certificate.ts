import { generateKeyPairSync, sign } from 'node:crypto'

/** A self-signed certificate and its key, as PEM. */
export interface TestCertificate {
  readonly certificate: string
  readonly key: string
}

/** DER: a tag, a length, the parts. */
function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts)
  const length = body.length < 128 ? [body.length] : body.length < 256 ? [0x81, body.length] : [0x82, body.length >> 8, body.length & 255]
  return Buffer.concat([Uint8Array.of(tag, ...length), body])
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts)
const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'))
const text = (tag: number, value: string): Buffer => der(tag, Buffer.from(value))

/** A certificate for 127.0.0.1 and `name`, valid from 2020 to 2049. */
export function selfSigned(name: string): TestCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = sequence(oid('2a8648ce3d040302'))
  const subject = sequence(der(0x31, sequence(oid('550403'), text(0x0c, name))))
  const validity = sequence(text(0x17, '200101000000Z'), text(0x17, '491231235959Z'))
  const names = sequence(oid('551d11'), der(0x04, sequence(text(0x82, name), der(0x87, Uint8Array.of(127, 0, 0, 1)))))
  const authority = sequence(oid('551d13'), der(0x01, Uint8Array.of(255)), der(0x04, sequence(der(0x01, Uint8Array.of(255)))))
  const spki = publicKey.export({ type: 'spki', format: 'der' })
  const version = der(0xa0, der(0x02, Uint8Array.of(2)))
  const body = sequence(version, der(0x02, Uint8Array.of(1)), algorithm, subject, validity, subject, spki, der(0xa3, sequence(names, authority)))
  const signature = der(0x03, Uint8Array.of(0), sign('sha256', body, privateKey))
  const encoded = sequence(body, algorithm, signature)
    .toString('base64')
    .replaceAll(/.{64}(?=.)/g, '$&\n')
  return {
    certificate: `-----BEGIN CERTIFICATE-----\n${encoded}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}
