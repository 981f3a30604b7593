<?php

// Serves /orders with the function of docs/guides/protect-an-api.md, which is in the other file.
require __DIR__ . '/validate.php';

header('Content-Type: application/json');
try {
    $claims = validate(substr($_SERVER['HTTP_AUTHORIZATION'] ?? '', strlen('Bearer ')));
    if ($claims['scope'] !== 'orders:read') {
        http_response_code(403);
    }
    echo json_encode($claims);
} catch (DomainException $error) {
    http_response_code(401);
    echo json_encode(['error' => $error->getMessage()]);
}
