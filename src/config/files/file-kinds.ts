import { createPrivateKey, X509Certificate } from 'node:crypto'

/** What a file of the configuration holds. */
export type FileKind = 'certificate' | 'key' | 'authorities' | 'text'

const pemCertificate = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g

/** When each certificate of a PEM file expires, in milliseconds. Throws where it holds none, or one that can't be read. */
function expiryTimes(content: Buffer): number[] {
  const blocks = content.toString('latin1').match(pemCertificate) ?? []
  if (blocks.length === 0) throw new Error('it holds no certificate (PEM)')
  return blocks.map((block) => new X509Certificate(block).validToDate.getTime())
}

/**
 * Reads the content of each kind: returns when it expires, in milliseconds, or undefined where it never does; throws where it can't be used. A chain ends with the
 * first of its certificates, a bundle of authorities with the last: it may hold old ones.
 */
export const expiryOf = {
  certificate: (content) => Math.min(...expiryTimes(content)),
  authorities: (content) => Math.max(...expiryTimes(content)),
  key(content) {
    createPrivateKey(content)
    return undefined
  },
  text(content) {
    if (content.toString('utf8').trim() === '') throw new Error('it is empty')
    return undefined
  },
} as const satisfies Record<FileKind, (content: Buffer) => number | undefined>
