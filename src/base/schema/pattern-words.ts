const characters = 'a-z, 0-9, space, ".", "_" and "-"'

/** What each pattern of the schema asks for. Keys are regular expressions, as `buf.validate` has them. */
const words: Readonly<Record<string, string>> = {
  '^[a-z0-9 ._-]{1,63}$': `must have 1 to 63 characters: ${characters}`,
  '^[a-z0-9 ._-]{1,}$': `may contain only ${characters}`,
  '^[0-9a-f]{40}(/[0-9a-f]{16})*$': 'must be the uid of a record, or the path of one that you can see',
  '^sha256:[0-9a-f]{64}$': 'must be a digest: "sha256:" and 64 hexadecimal digits in lower case',
  '^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$': 'must be a digest: "sha256:" and 64, or "sha512:" and 128 hexadecimal digits in lower case',
  '^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$': 'must be a tag: 1 to 128 letters, digits, ".", "_" and "-", and the first is not "." or "-"',
  '^[a-zA-Z0-9._-]*[*]?[a-zA-Z0-9._-]*$': 'may contain only letters, digits, ".", "_", "-" and one "*"',
  '^[a-zA-Z0-9._+~:-]*[*]?[a-zA-Z0-9._+~:-]*$': 'may contain only letters, digits, ".", "_", "+", "~", ":", "-" and one "*"',
  '^\\S(?:[\\S ]{0,253}\\S)?$': 'must have 1 to 255 characters, without white space at its ends, and with no other white space than spaces between them',
  '^[\\S ]{0,512}$': 'must have at most 512 characters, with no other white space than spaces',
  '^[a-zA-Z0-9_.\\-/]*[a-zA-Z0-9_.\\-]:[a-zA-Z0-9_.\\-]+$': 'must be a name and a tag, such as "library/nginx:latest"',
  '^[^./\\\\][^/\\\\]{0,254}$': 'must be a file name: 1 to 255 characters without "/" and "\\", and the first is not "."',
  '^[A-Za-z0-9][A-Za-z0-9+._:@~<>=!-]*$': 'must be a package, such as "curl" or "curl~8.9": a letter or digit first, and no spaces',
  '^https://[^\\s]+$': 'must be a URL that starts with "https://", without white space',
  '^https?://[^\\s]+$': 'must be a URL that starts with "https://" or "http://", without white space',
  '^[\\x21\\x23-\\x5B\\x5D-\\x7E]{1,255}$': 'must have 1 to 255 printable ASCII characters other than space, quotation mark and backslash',
  '^[a-z0-9][a-z0-9._-]{0,62}$': 'must have 1 to 63 characters: a-z, 0-9, ".", "_" and "-", and the first is a letter or digit',
  '^[0-9]{12}$': 'must have 12 digits',
  '^[0-9]{1,32}$': 'must have 1 to 32 digits',
  '^[a-z0-9.:-]{1,64}$': 'must have 1 to 64 characters: a-z, 0-9, ".", ":" and "-"',
  '^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$': 'may contain only letters, digits, "." and "-", and starts and ends with a letter or digit',
}

/** Returns what a pattern of the schema asks for, in words for clients. Undefined for a pattern that the schema does not have. */
export function patternInWords(pattern: string): string | undefined {
  return words[pattern]
}
