"""Small servers that speak providers' wire formats and refuse what the providers refuse.

Each is written from the provider's public API reference. Signatures are real: an HMAC over what they sign,
so that a changed, moved or foreign one is noticed.
"""
